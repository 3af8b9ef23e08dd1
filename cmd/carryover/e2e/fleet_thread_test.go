package e2e

import (
	"fmt"
	"hash/crc32"
	"net/http"
	"slices"
	"testing"
	"time"

	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// What a turn reuses, beside the reasons of misses.
const (
	hit      = "hit"
	whatever = "whatever" // a turn is not compared
)

// expect takes a turn as a stream whose answer must be whole and what the model was told to say, and compares what it reused and on which
// decode instance it was, if any is named.
func (c *chatting) expect(t *testing.T, reuse string, decode ...string) *record.Turn {
	t.Helper()
	id, script, body := c.next()
	a, err := c.post(t.Context(), "/v1/chat/completions", http.Header{"X-Request-Id": {id}}, body, unwatched)
	return c.check(t, heard{id, script, a, err}, reuse, decode)
}

// next asks the next question.
func (c *chatting) next() (id, script string, body []byte) {
	c.asks++
	// No two conversations say the same, so that none has its prompts computed by another's.
	script = c.h.askChat("auto", "", 100*int(crc32.ChecksumIEEE([]byte(c.id))%1000)+c.asks)
	return fmt.Sprint(c.id, "-", c.asks), script, encode(object{
		"model": "sim", "messages": c.h.messages, "stream": true, "max_tokens": 2000, "conversation_id": c.id,
	})
}

// heard is an answer, and what it must say.
type heard struct {
	id, script string
	*answered
	err error
}

func (c *chatting) check(t *testing.T, a heard, reuse string, decode []string) *record.Turn {
	t.Helper()
	if a.err != nil {
		t.Fatalf("%s: %v", a.id, a.err)
	}
	rec := c.turns.await(t, a.id)
	if a.status != http.StatusOK || a.ends != endsDone || a.content != a.script {
		t.Fatalf("%s: status %d, answer ends %s and is %q, want %q (%v)", a.id, a.status, a.ends, a.content, a.script, rec.Err)
	}
	c.h.messages = append(c.h.messages, a.assistant())
	got := string(rec.Reuse.Reason)
	if rec.Reuse.Hit {
		got = hit
	}
	if got != reuse && reuse != whatever {
		t.Errorf("%s: reuse %q, want %q (%s)", a.id, got, reuse, a.reuse())
	}
	if name := rec.Leg(upstream.RoleDecode).Instance; len(decode) > 0 && !slices.Contains(decode, name) {
		t.Errorf("%s: decode leg on %s, want %s", a.id, name, decode)
	}
	return &rec
}

// slowToken is long enough for a test to act while an answer of a hundred tokens is under way, also where a source looks every ten seconds.
const slowToken = 500 * time.Millisecond

// begin begins a turn on a decode instance and returns when its answer has begun, slowly. The function that it returns lets the answer come to
// its end and compares as expect does.
func (c *chatting) begin(t *testing.T, decode *vllmsim.Instance) (end func(reuse string)) {
	t.Helper()
	pace := func(between time.Duration) {
		noError(t, decode.Switch(vllmsim.Switches{Timing: &vllmsim.Timing{InterToken: between}}))
	}
	pace(slowToken)
	began, ended := make(chan struct{}), make(chan heard, 1)
	id, script, body := c.next()
	go func() {
		a, err := c.post(t.Context(), "/v1/chat/completions", http.Header{"X-Request-Id": {id}}, body, func(event int, _ []byte) {
			if event == 1 {
				close(began)
			}
		})
		ended <- heard{id, script, a, err}
	}()
	select {
	case <-began:
	case <-time.After(foundWithin):
		t.Fatalf("%s: no answer", id)
	}
	return func(reuse string) {
		if len(ended) > 0 {
			t.Errorf("%s has ended by itself: the test was to act before", id)
		}
		pace(0)
		c.check(t, <-ended, reuse, nil)
	}
}
