package sse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
)

// replacing returns an observer that makes the edits in the first event, and the answers it gets.
func replacing(edits []replacement, verdict Verdict) (observe func(Event) Verdict, accepted *[]bool) {
	accepted = new([]bool)
	return func(e Event) Verdict {
		defer func() { edits, verdict = nil, Forward }()
		for _, r := range edits {
			*accepted = append(*accepted, e.Replace(r.from, r.to, []byte(r.with)))
		}
		return verdict
	}, accepted
}

func TestRelay_ReplacesRangesOfData(t *testing.T) {
	long := strings.Repeat("long ", 2000)
	for _, tc := range []struct {
		name, input string
		edits       string // from, to and text of each, with a mark before those that are refused
		want        string
	}{
		{"grows", "data: [5] end\n\n", "0 3 null", "data: null end\n\n"},
		{"grows beyond the buffer", "data: [5] end\n\n", "0 3 " + long, "data: " + long + " end\n\n"},
		{"shrinks", "data: [1,2,3,4,5] end\n\n", "0 11 null", "data: null end\n\n"},
		{"same length", "data: [12] end\n\n", "0 4 null", "data: null end\n\n"},
		{"removes", "data: abc\n\n", "1 2 ", "data: ac\n\n"},
		{"removes all", "data: abc\n\n", "0 3 ", "data: \n\n"},
		{"several, in any order", "data: abcdef\n\n", "4 6 EEEEE|0 1 AAA|2 3 ", "data: AAAbdEEEEE\n\n"},
		{"side by side", "data: abcdef\n\n", "2 4 2|4 6 33333|0 2 1", "data: 1233333\n\n"},
		{"no space after the colon", "data:abc\r\n\r\n", "0 1 AA", "data:AAbc\r\n\r\n"},
		{"on the second data line", "data: a\ndata:bc\ndata: d\n\n", "2 3 BBB", "data: a\ndata:BBBc\ndata: d\n\n"},
		{"over data lines, with a comment between", "event: x\r\ndata: a[1,\r\n: ping\r\ndata: 2]b\r\n\r\n", "1 7 null", "event: x\r\ndata: anullb\r\n\r\n"},
		{"with both sides of a line end", "data: ab\ndata: cd\n\n", "1 2 BB|3 4 CC", "data: aBB\ndata: CCd\n\n"},

		{"with the member that is cut before it", `data: {"kv_transfer_params":1,"a":[5],"b":2}` + "\n\n", "!22 25 x|28 31 null|24 25 AA|!0 2 x|36 37 22", `data: {AAa":null,"b":22}` + "\n\n"},
		{"with the member that is cut behind it", `data: {"a":[5],"kv_transfer_params":1}` + "\n\n", "5 8 null|!8 9 ;|!29 31 2", `data: {"a":null}` + "\n\n"},
		{"around the member that is cut", `data: {"a":[5],"kv_transfer_params":1}` + "\n\n", "!0 31 null", `data: {"a":[5]}` + "\n\n"},

		{"the first of two that overlap counts", "data: abcdef\n\n", "1 4 1|!3 5 2|!0 2 3|!2 3 4|!0 6 5|!1 4 6|!1 2 7", "data: a1ef\n\n"},
		{"outside of data", "data: abc\n\n", "!-1 2 1|!2 4 2|!3 4 3|!9 10 4", "data: abc\n\n"},
		{"empty or reversed", "data: abc\n\n", "!1 1 1|!2 1 2|!0 0 3|!3 3 4", "data: abc\n\n"},
		{"in empty data", "data\n\n", "!0 0 1|!0 1 2", "data\n\n"},
		{"at a line end", "data: a\ndata\ndata: c\n\n", "!0 2 1|!1 2 2|!2 4 3", "data: a\ndata\ndata: c\n\n"},
		{"by a line end", "data: abc\n\n", "!0 1 a\nb|!0 1 \r|!1 2 \n\ndata: x", "data: abc\n\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for name, split := range map[string]func(io.Reader) io.Reader{
				"one read": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader,
			} {
				// The event stands between two others, so that a wrong move shows in them too.
				before, after := "data: held\n\n", ": ping\n\ndata: {\"after\":[5]}\n\ndata: unfinished"
				var edits []replacement
				var want []bool
				for edit := range strings.SplitSeq(tc.edits, "|") {
					ranges, refused := strings.CutPrefix(edit, "!")
					part := strings.SplitN(ranges, " ", 3)
					from, err := strconv.Atoi(part[0])
					must(t, err)
					to, err := strconv.Atoi(part[1])
					must(t, err)
					edits, want = append(edits, replacement{from, to, part[2]}), append(want, !refused)
				}
				observe, accepted := replacing(edits, Forward)
				var out strings.Builder
				r := New(&out, nil, Config{Strip: params, Observe: func(e Event) Verdict {
					if string(e.Data) == "held" {
						return Hold
					}
					return observe(e)
				}})
				must(t, r.Run(split(strings.NewReader(before+tc.input+after))))
				if got, want := out.String(), before+tc.want+after; got != want {
					t.Errorf("%s: relayed\n got %.200q\nwant %.200q", name, got, want)
				}
				if !slices.Equal(*accepted, want) {
					t.Errorf("%s: accepted %t, want %t", name, *accepted, want)
				}
			}
		})
	}
}

func TestRelay_EditsFollowTheVerdict(t *testing.T) {
	const first, second = "data: a[5]\r\n\r\n", "data: b\n\n"
	for _, tc := range []struct {
		name     string
		verdict  Verdict
		maxEvent int
		end      error
		want     string
	}{
		{"forwarded", Forward, 0, errBroken, "data: anull\r\n\r\n" + second},
		{"held, goes out before the next", Hold, 0, errBroken, "data: anull\r\n\r\n" + second},
		{"held, as long as an event may be", Hold, len("data: anull\r\n\r\n"), errBroken, "data: anull\r\n\r\n" + second},
		{"dropped", Drop, 0, io.EOF, second},
		{"stopped", Stop, 0, io.EOF, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			observe, _ := replacing([]replacement{{1, 4, "null"}}, tc.verdict)
			var out strings.Builder
			r := New(&out, nil, Config{MaxEvent: tc.maxEvent, Observe: observe})
			err := r.Run(io.MultiReader(strings.NewReader(first+second), iotest.ErrReader(tc.end)))
			if (tc.verdict == Stop) != errors.Is(err, ErrStopped) || errors.Is(tc.end, errBroken) != errors.Is(err, errBroken) {
				t.Errorf("Run: got %v", err)
			}
			if out.String() != tc.want || r.Stats().Bytes != int64(len(tc.want)) {
				t.Errorf("relayed %q, Stats.Bytes %d; want %q", out.String(), r.Stats().Bytes, tc.want)
			}
		})
	}
}

// What an event weighs after its edits counts where held bytes are bounded.
func TestRelay_HeldEventThatGrewBeyondTheBoundIsLetGo(t *testing.T) {
	const input = "data: a[5]\n\n"
	observe, _ := replacing([]replacement{{1, 4, strings.Repeat("x", 20)}}, Hold)
	var out strings.Builder
	r := New(&out, nil, Config{MaxEvent: len(input), Observe: observe})
	err := r.Run(io.MultiReader(strings.NewReader(input), iotest.ErrReader(errBroken)))
	if want := "data: a" + strings.Repeat("x", 20) + "\n\n"; !errors.Is(err, errBroken) || out.String() != want {
		t.Errorf("Run = %v, relayed %q; want the reader's error and %q", err, out.String(), want)
	}
}

func TestRelay_SubstanceIsWhatTheEngineSent(t *testing.T) {
	const data = `{"choices":[5],"kv_transfer_params":1}`
	observe, _ := replacing([]replacement{{11, 14, "[]"}}, Forward)
	var out strings.Builder
	r := New(&out, nil, Config{Strip: params, Substance: []string{"choices"}, Observe: observe})
	if err := r.Run(strings.NewReader("data: " + data + "\n\n")); err != nil || out.String() != `data: {"choices":[]}`+"\n\n" {
		t.Errorf("Run: error %v, relayed %q; want nil and the edited event", err, out.String())
	}
}

func TestRelay_EditsWithoutCutNeedNoSubstance(t *testing.T) {
	observe, accepted := replacing([]replacement{{21, 22, "[5]"}}, Forward)
	const input, want = `data: {"kv_transfer_parent":1}` + "\n\n", `data: {"kv_transfer_parent"[5]1}` + "\n\n"
	var out strings.Builder
	r := New(&out, nil, Config{Strip: params, Substance: []string{"choices"}, Observe: observe})
	if err := r.Run(strings.NewReader(input)); err != nil || out.String() != want || !slices.Equal(*accepted, []bool{true}) {
		t.Errorf("Run: error %v, relayed %q, accepted %t; want nil, %q, true", err, out.String(), *accepted, want)
	}
}

func TestEvent_ReplaceOutsideOfObserveIsRefused(t *testing.T) {
	if (Event{Data: []byte("abc")}).Replace(0, 1, []byte("x")) {
		t.Error("Replace of an event that no relay has made: got true, want false")
	}
	const input = "data: abc\n\ndata: def\n\n"
	var late Event
	var out strings.Builder
	r := New(writeFunc(func(p []byte) (int, error) {
		if late.Replace(0, 1, []byte("x")) {
			t.Error("Replace after Observe has returned: got true, want false")
		}
		return out.Write(p)
	}), nil, Config{Observe: func(e Event) Verdict {
		late = e
		return Forward
	}})
	if err := r.Run(iotest.OneByteReader(strings.NewReader(input))); err != nil || out.String() != input {
		t.Errorf("Run: error %v, relayed %q; want nil and %q", err, out.String(), input)
	}
}

// A reader that fills whatever it is offered must not make the buffer grow without end, and every byte must survive.
func TestRelay_GrowingEventsOfAFastStreamStayInASmallBuffer(t *testing.T) {
	var input, want bytes.Buffer
	for i := range 20000 {
		fmt.Fprintf(&input, "data: %d[5]x[6]\n\n", i)
		fmt.Fprintf(&want, "data: %dnullxnull\n\n", i)
	}
	peak, arrays := 0, map[*byte]bool{}
	var out bytes.Buffer
	var r *Relay
	r = New(&out, nil, Config{Observe: func(e Event) Verdict {
		peak, arrays[&r.buf.b[0]] = max(peak, len(r.buf.b)), true
		at := bytes.IndexByte(e.Data, '[')
		if !e.Replace(at+4, at+7, []byte("null")) || !e.Replace(at, at+3, []byte("null")) {
			t.Fatalf("Replace in %q: got false, want true", e.Data)
		}
		return Forward
	}})
	if err := r.Run(&input); err != nil || !bytes.Equal(out.Bytes(), want.Bytes()) {
		t.Errorf("Run: error %v, relayed %d bytes; want nil and %d bytes", err, out.Len(), want.Len())
	}
	if peak > 2*smallBuffer || len(arrays) > 4 {
		t.Errorf("buffer: got %d bytes, allocated %d times; want at most %d and 4", peak, len(arrays), 2*smallBuffer)
	}
}

func TestBuffer_InsertsHoweverMuchRoomThereIs(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), smallBuffer/16)
	for size := smallBuffer - 600; size <= smallBuffer; size++ {
		for _, n := range []int{1, 4, 100, 2 * smallBuffer} {
			b := buffer{b: make([]byte, smallBuffer), end: size}
			copy(b.b, content[:size])
			b.hold(10)
			b.drop(1)
			b.insert(bytes.Repeat([]byte("x"), n))
			want := string(content[:10]) + strings.Repeat("x", n)
			if got := string(b.b[:b.heldEnd]); got != want || string(b.rest()) != string(content[11:size]) {
				t.Fatalf("%d bytes, %d inserted: held %.50q, rest %d bytes; want %.50q, %d bytes", size, n, got, len(b.rest()), want, size-11)
			}
		}
	}
}

func TestBuffer_OffersEnoughRoomAfterEdits(t *testing.T) {
	for end := range smallBuffer {
		b := buffer{b: make([]byte, 2*smallBuffer), end: end, calm: calmReads, widened: true}
		if got := len(b.spare()); got < minRead {
			t.Fatalf("room behind %d bytes: got %d, want at least %d", end, got, minRead)
		}
	}
}

func TestBuffer_ManyInsertsMoveTheRestAFewTimes(t *testing.T) {
	const size = 1 << 20
	var b buffer
	for b.end < size {
		b.filled(min(len(b.spare()), size-b.end))
	}
	moves := 0
	for range size / 10 {
		b.hold(9)
		if b.next == b.heldEnd {
			moves++
		}
		b.drop(1)
		b.insert([]byte("ab"))
	}
	if moves > 20 {
		t.Errorf("the rest was moved %d times for %d inserts, want at most 20", moves, size/10)
	}
}

func TestRelay_ScratchSpaceOfBigEditsIsGivenBack(t *testing.T) {
	events := []string{
		"data: " + strings.Repeat("x", 1000) + "\n\n", "data: big\n\n", "data: [DONE]\n\n",
		"data: {" + strings.Repeat(`"kv_transfer_params":1,`, 1000) + `"a":1}` + "\n\n",
	}
	r := New(io.Discard, nil, Config{Strip: params, Observe: func(e Event) Verdict {
		switch e.Data[0] {
		case 'x':
			for i := range e.Data {
				e.Replace(i, i+1, []byte("yy"))
			}
		case 'b':
			e.Replace(0, 1, bytes.Repeat([]byte("b"), 100<<10))
		}
		return Forward
	}})
	done := 0
	err := r.Run(readFunc(func(p []byte) (int, error) {
		if list, cuts, text := cap(r.edits.list), cap(r.edits.cuts), cap(r.edits.text); list > 64 || cuts > 64 || text > smallBuffer {
			t.Errorf("before event %d: scratch space for %d edits, %d cuts, %d bytes; want at most 64, 64, %d", done, list, cuts, text, smallBuffer)
		}
		if done == 3 && strings.HasPrefix(events[done], "data") && len(r.buf.b) != firstBuffer {
			t.Errorf("buffer after an event that grew to 100 KiB: got %d, want %d", len(r.buf.b), firstBuffer)
		}
		if done == len(events) {
			return 0, io.EOF
		}
		n := copy(p, events[done])
		if events[done] = events[done][n:]; events[done] == "" {
			done++
		}
		return n, nil
	}))
	if err != nil {
		t.Errorf("Run: %v", err)
	}
}
