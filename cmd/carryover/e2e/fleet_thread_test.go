package e2e

import (
	"fmt"
	"hash/crc32"
	"net/http"
	"testing"
	"time"

	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// thread is one conversation as a client holds it that checks what it is answered.
type thread struct {
	*rig
	id           string // of its requests, with their numbers
	conversation string
	model        string
	header       http.Header
	asked        int
	history
}

func (r *rig) thread(id string) *thread {
	return &thread{rig: r, id: id, conversation: id, model: "sim", header: http.Header{}}
}

// What a turn reuses, beside the reasons of misses.
const (
	hit      = "hit"
	whatever = "whatever" // a turn is not compared
)

// turn holds a turn whose answer must be whole and right, and compares what it reused and on which decode instance it was, if
// any are named.
func (h *thread) turn(t *testing.T, reuse string, decode ...*vllmsim.Instance) *record.Turn {
	t.Helper()
	id, script, body := h.next()
	a, err := h.post(t.Context(), "/v1/chat/completions", h.with(id), body, unwatched)
	return h.check(t, heard{id, script, a, err}, reuse, decode)
}

// next asks the next question.
func (h *thread) next() (id, script string, body []byte) {
	h.asked++
	// No two threads say the same, so that none has its prompts computed by another's.
	script = h.askChat("auto", "", 100*int(crc32.ChecksumIEEE([]byte(h.id))%1000)+h.asked)
	return fmt.Sprint(h.id, "-", h.asked), script, encode(object{
		"model": h.model, "messages": h.messages, "stream": true, "max_tokens": 2000, "conversation_id": h.conversation,
	})
}

// with are the thread's headers with the id of a request.
func (h *thread) with(id string) http.Header {
	header := h.header.Clone()
	header.Set("X-Request-Id", id)
	return header
}

// heard is an answer, and what it must say.
type heard struct {
	id, script string
	*answered
	err error
}

func (h *thread) check(t *testing.T, a heard, reuse string, decode []*vllmsim.Instance) *record.Turn {
	t.Helper()
	if a.err != nil {
		t.Fatalf("%s: %v", a.id, a.err)
	}
	rec := h.turns.await(t, a.id)
	if a.status != http.StatusOK || a.ends != endsDone || a.content != a.script {
		t.Fatalf("%s: status %d, answer ends %s and is %q, want %q (%v)", a.id, a.status, a.ends, a.content, a.script, rec.End.Err)
	}
	h.messages = append(h.messages, a.assistant())
	got := string(rec.Reuse.Reason)
	if rec.Reuse.Hit {
		got = hit
	}
	if got != reuse && reuse != whatever {
		t.Errorf("%s: reuse %q, want %q (%s)", a.id, got, reuse, a.reuse())
	}
	for _, instance := range decode {
		if name := rec.Leg(upstream.RoleDecode).Instance; name != authority(instance) {
			t.Errorf("%s: decode leg on %s, want %s", a.id, name, authority(instance))
		}
	}
	return &rec
}

// slowToken is long enough for a test to act while an answer of a hundred tokens is under way, also where a source looks every ten seconds.
const slowToken = 500 * time.Millisecond

// under is a turn whose answer is under way, slowly.
type under struct {
	*thread
	ended chan heard // one answer, read once
	slow  []*vllmsim.Instance
}

// begin begins a turn on one of these decode instances and returns when its answer has begun. They are slow until end.
func (h *thread) begin(t *testing.T, decode ...*vllmsim.Instance) *under {
	t.Helper()
	u := &under{thread: h, ended: make(chan heard, 1), slow: decode}
	u.pace(t, slowToken)
	began := make(chan struct{}, 1)
	id, script, body := h.next()
	go func() {
		a, err := h.post(t.Context(), "/v1/chat/completions", h.with(id), body, func(event int, _ []byte) {
			if event == 1 {
				began <- struct{}{}
			}
		})
		u.ended <- heard{id, script, a, err}
	}()
	select {
	case <-began:
	case a := <-u.ended:
		u.ended <- a
	case <-time.After(foundWithin):
		t.Fatalf("%s: no answer", id)
	}
	return u
}

// end lets the answer come to its end and compares as turn does.
func (u *under) end(t *testing.T, reuse string, decode ...*vllmsim.Instance) *record.Turn {
	t.Helper()
	select {
	case a := <-u.ended:
		t.Errorf("%s has ended by itself: the test was to act before", a.id)
		u.ended <- a
	default:
	}
	u.pace(t, 0)
	return u.check(t, <-u.ended, reuse, decode)
}

func (u *under) pace(t *testing.T, between time.Duration) {
	t.Helper()
	for _, instance := range u.slow {
		noError(t, instance.Switch(vllmsim.Switches{Timing: &vllmsim.Timing{InterToken: between}}))
	}
}

// on is turn for decode instances with names of their own.
func (h *thread) on(t *testing.T, reuse, decode string) *record.Turn {
	t.Helper()
	rec := h.turn(t, reuse)
	if name := rec.Leg(upstream.RoleDecode).Instance; name != decode {
		t.Errorf("%s: decode leg on %s, want %s", rec.Turn, name, decode)
	}
	return rec
}
