package upstream

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/sse/rawjson"
	"carryover/upstream/body"
)

// wireEngine is a decode instance that reads one request and then writes what the
// test writes, byte for byte.
func wireEngine(t *testing.T) (instance *Instance, accepted <-chan net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conns := make(chan net.Conn, 1) // the engine does not wait for the test
	over := make(chan struct{})
	go func() {
		defer close(over)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		conns <- conn
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-over
		select {
		case conn := <-conns:
			_ = conn.Close()
		default:
		}
	})
	i, err := NewInstance(RoleDecode, "wire", "http://"+listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return &i, conns
}

// Heads of answers.
const (
	wholeHead  = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n"
	streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)

// leg is a decode leg whose engine the test plays.
type leg struct {
	t      *testing.T
	stream *Stream
	engine net.Conn
}

// minutes are limits that these tests don't come to.
func minutes() Limits { return Limits{FirstByte: time.Minute, Idle: time.Minute} }

// startLeg sends a leg; once the engine has it, answer plays the first part of the
// engine, up to the headers at least.
func startLeg(t *testing.T, answer func(l *leg)) *leg {
	t.Helper()
	instance, accepted := wireEngine(t)
	client := newTestClient(t, "")
	l := &leg{t: t}
	played := make(chan struct{})
	go func() {
		defer close(played)
		l.engine = <-accepted
		answer(l)
	}()
	stream, err := client.Decode(t.Context(), Leg{Instance: instance, API: body.Chat, Body: rawjson.Pieces{[]byte(`{}`)}, RequestID: "r"}, minutes())
	if err != nil {
		t.Fatal(err)
	}
	l.stream = stream
	<-played
	t.Cleanup(func() {
		_ = l.engine.Close()
		_ = stream.Close()
	})
	return l
}

// say writes as the engine and returns a moment at which that has arrived: on
// loopback, bytes are in the other end's socket when the write returns.
func (l *leg) say(text string) time.Time {
	l.t.Helper()
	if _, err := io.WriteString(l.engine, text); err != nil {
		l.t.Error(err)
	}
	return time.Now()
}

// event is one chunk of an answer's body.
func event(data string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(data), data) }

// read checks what comes next, in a read or several: net/http waits for the rest of a chunk that has begun, our client
// for nothing once there is something.
func (l *leg) read(want string) {
	l.t.Helper()
	p, n := make([]byte, 1<<10), 0
	for n < len(want) {
		m, err := l.stream.Read(p[n:])
		if n += m; err != nil && !errors.Is(err, io.EOF) || !strings.HasPrefix(want, string(p[:n])) || err != nil && n < len(want) {
			l.t.Fatalf("read %q (%v), want %q", p[:n], err, want)
		}
	}
}

// pass lets the clock pass, while nothing is done that could be waited for.
func pass(d time.Duration) { <-time.After(d) }

// wantBefore checks that the answer is not taken for younger than it is.
func (l *leg) wantBefore(arrived time.Time) {
	l.t.Helper()
	if got := l.stream.FreshAsOf(); got.After(arrived) {
		l.t.Errorf("caught up %v after the bytes had arrived", got.Sub(arrived))
	}
}

// wantYoung checks that the answer is not taken for much older than it is.
func (l *leg) wantYoung(sent time.Time) {
	l.t.Helper()
	if got := l.stream.FreshAsOf(); sent.Sub(got) > 2*slice {
		l.t.Errorf("caught up %v before the bytes were sent, want about %v at most", sent.Sub(got), slice)
	}
}

// lying is longer than an idle machine takes for anything.
const lying = 60 * time.Millisecond

func TestStream_HeadersThatLayThereMakeNoTicketYounger(t *testing.T) {
	var arrived time.Time
	l := startLeg(t, func(l *leg) { arrived = l.say(wholeHead + "{}") })
	pass(lying)
	l.wantBefore(arrived)
	l.read("{}")
	l.wantBefore(arrived)
}

// lazy takes its time for every read, as a process does on a machine that is
// short of CPU.
type lazy struct{ io.ReadCloser }

func (b lazy) Read(p []byte) (int, error) {
	pass(lying / 2)
	return b.ReadCloser.Read(p)
}

func TestStream_ASlowReadOfWhatLayThereMakesNoTicketYounger(t *testing.T) {
	l := startLeg(t, func(l *leg) { l.say(streamHead + event("one")) })
	l.stream.body = lazy{l.stream.body}
	l.read("one")
	arrived := l.say(event("finish"))
	pass(lying)
	l.read("finish")
	l.wantBefore(arrived)
}

// net/http fills a read from several reads of the connection while it is inside of
// a chunk, and vLLM's server (uvicorn) sends each event as one chunk.
func TestStream_AnEventInPiecesCountsFromItsFirst(t *testing.T) {
	t.Parallel()
	l := startLeg(t, func(l *leg) { l.say(streamHead + event("one")) })
	l.read("one")
	done := make(chan time.Time, 1)
	go func() {
		arrived := l.say("c\r\nparams")
		pass(slice + slice/2) // the connection is seen to be empty meanwhile
		l.say(" later\r\n")
		done <- arrived
	}()
	l.read("params later")
	l.wantBefore(<-done)
}

func TestStream_AFullReadLeavesBytesThatHadArrived(t *testing.T) {
	t.Parallel()
	l := startLeg(t, func(l *leg) { l.say(streamHead + event("one")) })
	l.read("one")
	arrived := l.say("c\r\nonetwo")
	var p [3]byte
	if _, err := io.ReadFull(l.stream, p[:]); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		pass(slice + slice/2)
		l.say("-three\r\n")
	}()
	l.read("two-three") // "two" had been read from the connection before
	l.wantBefore(arrived)
	<-done
}

func TestStream_BodyThatCameWithTheHeadersIsAsOld(t *testing.T) {
	t.Parallel()
	var arrived time.Time
	l := startLeg(t, func(l *leg) { arrived = l.say(streamHead + "c\r\nparams") })
	done := make(chan struct{})
	go func() {
		defer close(done)
		pass(slice + slice/2)
		l.say(" later\r\n")
	}()
	l.read("params later")
	l.wantBefore(arrived)
	<-done
}

func TestStream_AWholeAnswerIsAsYoungAsItsHeaders(t *testing.T) {
	t.Parallel()
	var sent time.Time
	l := startLeg(t, func(l *leg) {
		pass(3 * slice)
		sent = time.Now()
		l.say(wholeHead + "{}")
	})
	l.wantYoung(sent)
	l.wantBefore(time.Now())
}

func TestStream_ALateFinishIsAsYoungAsItIs(t *testing.T) {
	t.Parallel()
	l := startLeg(t, func(l *leg) { l.say(streamHead + event("one")) })
	l.read("one")
	var sent, arrived time.Time
	done := make(chan struct{})
	go func() {
		defer close(done)
		pass(3 * slice)
		sent = time.Now()
		arrived = l.say(event("finish") + "0\r\n\r\n")
	}()
	l.read("finish")
	<-done
	l.wantYoung(sent)
	l.wantBefore(arrived)
	if n, err := l.stream.Read(make([]byte, 8)); n != 0 || !errors.Is(err, io.EOF) {
		t.Fatalf("read %d bytes (%v), want the end", n, err)
	}
}
