package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"carryover/cmd/carryover/testrig"
	"carryover/upstream/vllmsim"
)

// Whether engines use forwarded ids is found out for all clients. What one brings
// with it, a wrong key or an unknown model, must not keep others from reuse.
func TestTokenProof_AnotherClientCannotKeepReuseOff(t *testing.T) {
	bad := http.Header{"Authorization": {"Bearer wrong"}}
	good := http.Header{"Authorization": {"Bearer right"}}
	for _, row := range []struct {
		name, key   string
		otherClient func(members map[string]any) http.Header
	}{
		{"wrong key, and no key of our own", "right", func(map[string]any) http.Header { return bad }},
		{"unknown model", "", func(members map[string]any) http.Header {
			members["model"] = "nope"
			return http.Header{}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			cfg := vllmsim.DefaultConfig()
			cfg.APIKey = row.key
			r := startRig(t, rigConfig{
				cfg: cfg, flags: []string{"--forward-authorization"},
			})
			turn := func(id string, change func(map[string]any) http.Header, messages []json.RawMessage) *answered {
				members := map[string]any{"model": "sim", "messages": messages, "max_tokens": 400, "conversation_id": id}
				header := change(members)
				a, err := r.post(t.Context(), "/v1/chat/completions", header, encode(members), unwatched)
				if err != nil {
					t.Fatal(err)
				}
				return a
			}
			messages := []json.RawMessage{question("SAY " + longText(1) + ".")}
			if a := turn("strange", row.otherClient, messages); a.status < 400 {
				t.Fatalf("the stranger got status %d", a.status)
			}
			a := turn("main", func(map[string]any) http.Header { return good }, messages)
			if turn := r.turns.await(t, a.header.Get("X-Request-Id")); turn.Stored != "yes" {
				t.Errorf("the next client's turn left no ticket: %+v", turn)
			}
			r.verify(t, pins{})
		})
	}
}

// A client that leaves while the engine is being asked takes nothing with it.
func TestTokenProof_AClientThatLeavesDuringTheProbe(t *testing.T) {
	cfg := vllmsim.DefaultConfig()
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
	behind := testrig.StartInstance(t, cfg, "")
	r := startRig(t, rigConfig{decode: []vllmsim.Config{cfg}, flags: []string{"--prefill", p.front(t, behind)}})
	r.prefill = append(r.prefill, behind)
	messages := []json.RawMessage{question("SAY " + longText(1) + ".")}
	body := encode(map[string]any{"model": "sim", "messages": messages, "max_tokens": 400, "conversation_id": "strange"})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = r.post(ctx, "/v1/chat/completions", http.Header{}, body, unwatched) // it has left
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
