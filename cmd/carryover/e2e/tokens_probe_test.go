package e2e

import (
	"context"
	"testing"
)

// A client that leaves while the engine is being asked takes nothing with it.
func TestTokenProof_AClientThatLeavesDuringTheProbe(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	entered, answer := make(chan struct{}), make(chan struct{})
	p := &tampering{request: func(_ string, body []byte) []byte {
		select {
		case entered <- struct{}{}: // once
			<-answer
		default:
		}
		return body
	}}
	r := startRig(t, rigConfig{tamper: p})
	messages := speech{says(1)}
	body := encode(object{"model": "sim", "messages": messages, "max_tokens": 400, "conversation_id": "strange"})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = r.post(ctx, "/v1/chat/completions", nil, body, unwatched) // it has left
	}()
	<-entered
	leave()
	<-gone
	close(answer)
	a := r.askAs(t, "main", messages...)
	if turn := r.turns.await(t, a.header.Get("X-Request-Id")); turn.Stored != "yes" {
		t.Errorf("the next client's turn left no ticket: %+v", turn)
	}
	r.verify(t, pins{})
}
