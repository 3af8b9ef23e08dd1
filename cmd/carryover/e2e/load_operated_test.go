package e2e

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"carryover/server/record"
)

// startOperated runs the program with a listener for operators.
func startOperated(t *testing.T, c rigConfig) *rig {
	t.Helper()
	c.admin = true
	return startRig(t, c)
}

// sent sends a turn and returns the answer with the record of the turn.
func (r *rig) sent(t *testing.T, members object) (*answered, record.Turn) {
	t.Helper()
	a, id := r.try(t.Context(), t, members)
	return a, r.turns.await(t, id)
}

// try sends a turn until it has ended or its context does.
func (r *rig) try(ctx context.Context, t *testing.T, members object) (*answered, string) {
	t.Helper()
	id := fmt.Sprintf("asked-%d", r.asked.Add(1))
	a, err := r.post(ctx, endpointOf(members), http.Header{"X-Request-Id": {id}}, encode(members), unwatched)
	if err != nil && ctx.Err() == nil {
		t.Errorf("%s: %v", id, err)
	}
	if err != nil {
		a = &answered{ends: endsLeft}
	}
	return a, id
}

// foretold is a conversation whose answers are known beforehand.
type foretold struct {
	*rig
	id       string
	stream   bool
	turns    int
	messages speech
}

// say asks what has so much text before it, and wants the model's answer.
func (d *foretold) say(t *testing.T, text string) (*answered, record.Turn) {
	t.Helper()
	d.turns++
	answer := fmt.Sprintf("Answer %d of %s is that the clerk remembers it.", d.turns, d.id)
	d.messages = append(d.messages, question(text+" SAY "+answer))
	a, rec := d.sent(t, object{
		"model": "sim", "messages": d.messages, "max_tokens": 400, "stream": d.stream, "conversation_id": d.id,
	})
	if a.status != http.StatusOK || a.content != answer {
		t.Fatalf("%s, turn %d: got status %d, %q, want %q: %.500s", d.id, d.turns, a.status, a.content, answer, a.raw)
	}
	d.messages = append(d.messages, a.assistant())
	return a, rec
}
