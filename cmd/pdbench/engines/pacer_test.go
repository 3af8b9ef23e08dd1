package engines

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"carryover/cmd/pdbench/wire"
)

// arrived is what a reader has got of a stream.
type arrived struct {
	tokens int
	carry  []byte // the beginning of an event whose end has not come
}

// take fails the test if the next part of a stream has other tokens than those that are due.
func (a *arrived) take(t *testing.T, says AnswerText, part []byte) {
	t.Helper()
	a.carry = append(a.carry, part...)
	for {
		event, rest, found := bytes.Cut(a.carry, []byte("\n\n"))
		if !found {
			return
		}
		_, text, _ := bytes.Cut(event, []byte(`"content":"`))
		text, _, found = bytes.Cut(text, []byte(`"`))
		if want := says.Add(nil, a.tokens); !found || len(text) > 0 && !bytes.Equal(text, want) {
			t.Fatalf("token %d: %s, want %s", a.tokens, event, want)
		}
		if len(text) > 0 {
			a.tokens++
		}
		a.carry = rest
	}
}

// TestPacer_ASlowReaderDelaysNobody lets a reader stand still until nothing more fits between it and the engine: the pacer goes on with
// others, and the reader gets all of it later.
func TestPacer_ASlowReaderDelaysNobody(t *testing.T) {
	decode, p, step := paced()
	slow, _, reader := waiting(t, decode, Pace{Chunks: 200_000, Gap: slotTime})
	p.pace(slow)
	for len(slow.unsent) == 0 {
		step(slotTime)
	}
	stopped := slow.at
	other, _, _ := waiting(t, decode, Pace{Chunks: 5, Gap: slotTime})
	p.pace(other)
	for !other.over.Load() {
		if !step(slotTime) {
			t.Fatal("the slow stream is gone")
		}
	}
	if slow.at != stopped {
		t.Errorf("the slow stream went on from %d to %d", stopped, slow.at)
	}
	// All that was sent arrives in order, and the rest behind it.
	w, got := wire.NewReader(reader), arrived{}
	_, err := w.Head()
	must(t, err)
	for slow.at < stopped+100 {
		must(t, reader.SetReadDeadline(time.Now().Add(time.Millisecond)))
		part, err := w.Piece()
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		got.take(t, slow.says, part)
		step(slotTime)
	}
	if got.tokens == 0 {
		t.Error("nothing arrived")
	}
	_ = reader.Close()
	for !slow.over.Load() {
		step(slotTime)
	}
	if p.turn() || p.size != 0 {
		t.Error("a stream is left in the wheel")
	}
	if _, counts, quiet := decode.ledger.look(); counts.Aborted != 1 || !quiet {
		t.Errorf("counts %+v, quiet %v", counts, quiet)
	}
}

// paced is a decode engine with a clock of the test's, which each step moves.
func paced() (decode *engine, p *pacer, step func(time.Duration) bool) {
	_, decode = newEngines(nil)
	p, clock := decode.pacer, time.Unix(1<<30, 0)
	p.now = func() time.Time { return clock }
	return decode, p, func(d time.Duration) bool {
		clock = clock.Add(d)
		return p.turn()
	}
}

// connected returns the two ends of a connection with small buffers.
func connected(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	defer func() { _ = l.Close() }()
	at, err := net.ResolveTCPAddr("tcp", l.Addr().String())
	must(t, err)
	far, err = net.DialTCP("tcp", nil, at)
	must(t, err)
	near, err = l.AcceptTCP()
	must(t, err)
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	must(t, errors.Join(near.SetWriteBuffer(4<<10), far.SetReadBuffer(4<<10)))
	return near, far
}

// waiting is a stream that has come to its first pause, and the two ends of its connection.
func waiting(t *testing.T, e *engine, p Pace) (s *stream, near, far *net.TCPConn) {
	t.Helper()
	r := chatRequest{maxTokens: -1}
	must(t, r.read(e.seed, []byte(chat(question, streamed+`,"return_token_ids":true,"kv_transfer_params":{"do_remote_prefill":true}`))))
	s = &stream{reply: e.reply(&r, []byte("r"), &p), pacing: pacing{pace: &p, done: make(chan struct{})}}
	near, far = connected(t)
	socket, err := near.SyscallConn()
	must(t, err)
	s.socket = socket
	for !s.waits() {
		_, err := near.Write(s.next())
		must(t, err)
	}
	e.ledger.begin()
	return s, near, far
}

// TestPacer_KeepsTheGap runs a stream by a clock of the test's: a token for each gap, none between.
func TestPacer_KeepsTheGap(t *testing.T) {
	decode, p, step := paced()
	const gap = 20 * time.Millisecond
	s, near, far := waiting(t, decode, Pace{Chunks: 4, Gap: gap})
	p.pace(s)
	for token := 1; token < 4; token++ {
		for range gap / slotTime {
			if got := s.at - firstToken; got != token {
				t.Fatalf("token %d was written, want %d", got, token)
			}
			step(slotTime)
		}
	}
	if !s.over.Load() {
		t.Error("the stream has not ended with its last token")
	}
	_ = near.Close()
	if text, err := io.ReadAll(far); err != nil || !bytes.HasSuffix(text, []byte("data: [DONE]\n\n\r\n0\r\n\r\n")) {
		t.Errorf("%v, %.200q", err, text)
	}
}

// TestPacer_StreamsOfAnInstanceStepTogether begins streams at different times: those of one instance get their tokens in the same slot,
// those of two half a gap apart.
func TestPacer_StreamsOfAnInstanceStepTogether(t *testing.T) {
	for instances, want := range map[int]int{1: 1, 2: 2} {
		decode, p, step := paced()
		const gap = 20 * time.Millisecond
		var streams []*stream
		for n := range 8 {
			s, _, _ := waiting(t, decode, Pace{Chunks: 100, Gap: gap, Instances: instances})
			step(time.Duration(n) * slotTime)
			p.pace(s)
			streams = append(streams, s)
		}
		steps, before := 0, make([]int, len(streams))
		step(gap) // now each is in step
		for range gap / slotTime {
			for n, s := range streams {
				before[n] = s.at
			}
			step(slotTime)
			wrote := 0
			for n, s := range streams {
				wrote += s.at - before[n]
			}
			if wrote == 0 {
				continue
			}
			if steps++; wrote != len(streams)/instances {
				t.Errorf("%d instances: %d of %d streams got a token", instances, wrote, len(streams))
			}
		}
		if steps != want {
			t.Errorf("%d instances: %d steps in a gap", instances, steps)
		}
	}
}
