package sse

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"carryover/sse/rawjson"
	"carryover/sse/rawjson/rawjsontest"
)

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
		"data: {" + strings.Repeat(`"kv_transfer_params":1,`, 1000) + "\"a\":1}\n\n",
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

// An observer that rewrites an event sees what the client would, and what it says instead goes out whole, without the
// member that is cut.
func TestRelay_SupplantAfterACut(t *testing.T) {
	for in, shown := range map[string]string{
		`{"a":1}`: `{"a":1}`, `{"a":1,"secret":{"b":2}}`: `{"a":1}`, `{"ids":[1],"secret":2,"c":3}`: `{"ids":null,"c":3}`, "{\"a\":1,\ndata: \"secret\":2}": `{"a":1}`,
	} {
		out, _, err := run(strings.NewReader("data: "+in+"\n\n"), Config{Strip: "secret", Observe: func(e Event) Verdict {
			at := strings.Index(string(e.Data), "[1]")
			e.Replace(at, at+len("[1]"), []byte("null"))
			if got := string(e.Shown()); got != shown {
				t.Errorf("%s: shown %q, want %q", in, got, shown)
			}
			if e.Supplant([]byte("{\n}")) || !e.Supplant([]byte(`{"first":1}`)) || !e.Supplant([]byte(`{"all":1}`)) {
				t.Errorf("%s: a line end is taken, or something else is not", in)
			}
			return Forward
		}})
		if err != nil || out != "data: {\"all\":1}\n\n" {
			t.Errorf("%s: got %q, %v", in, out, err)
		}
	}
}

// ended is an event with the blank line behind it that most have.
func ended(event string) string {
	if event == "" || strings.HasSuffix(event, "\r") || strings.HasSuffix(event, "\n") {
		return event
	}
	return event + "\n\n"
}

// relayedBetween relays an event in each way of reading, between two others, so that a wrong cut shows in them too.
func relayedBetween(t *testing.T, input, want, wantMember string) {
	t.Helper()
	input, want = ended(input), ended(want)
	const before, after = "data: {\"choices\":[0]}\r\n\r\n", ": ping\n\ndata: {\"choices\":[7]}\n\ndata: [DONE]\n\n"
	for name, src := range readings(before+input+after, nil) {
		member := ""
		out, _, err := run(src, Config{Strip: params, Substance: []string{"choices", "usage", "error"}, Observe: func(e Event) Verdict {
			member += string(e.Member)
			return Forward
		}})
		if err != nil || out != before+want+after || member != wantMember {
			t.Errorf("%s: error %v, captured %q, want %q, relayed\n got %q\nwant %q", name, err, member, wantMember, out, before+want+after)
		}
	}
}

// Beside values that are too deep to be read, which FuzzRelay leaves out, the member is cut and captured too. encoding/json reads 10000 levels.
func TestRelay_CutsTheMemberBesideDeepValues(t *testing.T) {
	const kv, member = `{"a":[[1,2]]}`, `"kv_transfer_params":`
	for _, deep := range []string{rawjsontest.Nested(rawjson.MaxDepth + 1), rawjsontest.Nested(20000)} {
		relayedBetween(t, `data: {"choices":[1],"x":`+deep+`,`+member+kv+"}", `data: {"choices":[1],"x":`+deep+"}", kv)
		relayedBetween(t, `data: {`+member+kv+`,"choices":`+deep+"}", `data: {"choices":`+deep+"}", kv)
		relayedBetween(t, `data: {"choices":[1],`+member+deep+"}", `data: {"choices":[1]}`, deep)
		notJSON := `data: {"choices":[1],"x":` + deep + `],` + member + kv + "}"
		relayedBetween(t, notJSON, notJSON, "")
	}
}

func TestRelay_NameThatJSONMaySpellWithShortEscapes(t *testing.T) {
	if out, _, err := run(strings.NewReader("data: {\"a\\/b\":1,\"c\":2}\n\n"), Config{Strip: "a/b"}); err != nil || out != "data: {\"c\":2}\n\n" {
		t.Errorf("got %q, %v, want the member cut", out, err)
	}
}
