package turn

import (
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"carryover/convcache"
	"carryover/server/pick"
	"carryover/server/pins"
	"carryover/server/proof"
	"carryover/server/request"
	"carryover/server/reuse"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// reuses is a connector that leaves KV for a next turn.
type reuses struct{ upstream.Connector }

// Traits implements Connector.
func (reuses) Traits() upstream.Traits { return upstream.Traits{Reuses: true} }

// turnOfLargeBody is a turn that has read a request, and what tells whether its body is held.
func turnOfLargeBody(t *testing.T, tokens *proof.Tokens) (*turn, weak.Pointer[byte]) {
	t.Helper()
	raw := []byte(`{"model":"m","chat_template_kwargs":{"a":"` + strings.Repeat("k", 1<<20) + `"},"messages":[{"role":"user","content":"x"}]}`)
	req, err := body.ParseRequest(body.Chat, raw)
	if err != nil {
		t.Fatal(err)
	}
	turn := &turn{Request: request.Request{API: body.Chat, Conversation: request.Conversation{Known: true}}, asked: pick.Attempt{Body: req}}
	tickets := reuse.New(
		reuse.Config{},
		reuse.Deps{Tokens: tokens, Connector: reuses{}, Pins: pins.New(pins.Config{}, pins.Deps{Fleet: fleet.New(fleet.Config{}), Connector: reuses{}})},
	)
	if turn.admitted = tickets.Admit(&turn.Request, req, time.Now()); !turn.admitted.TakesPart() {
		t.Fatal(turn.admitted.Ineligible)
	}
	return turn, weak.Make(&raw[0])
}

// Whatever the path of a turn: once decode answers, nothing holds the client's body, whose share is given back then.
func TestDropBody_NothingHoldsTheBody(t *testing.T) {
	secret, err := convcache.RandomSecret()
	if err != nil {
		t.Fatal(err)
	}
	prefill, decode := newPair(t)
	tokens := &proof.Tokens{Chains: secret.ChainKey(), Logger: slog.New(slog.DiscardHandler)}
	for name, row := range map[string]struct {
		prefill     *fleet.Incarnation
		quarantined bool
	}{
		"prefill and decode":  {prefill, false},
		"decode alone":        {nil, false},
		"prefill quarantined": {prefill, true},
	} {
		t.Run(name, func(t *testing.T) {
			turn, holdsBody := turnOfLargeBody(t, tokens)
			turn.admitted.Prove(t.Context(), row.prefill, decode, row.quarantined, "turn")
			turn.dropBody()
			runtime.GC()
			runtime.GC()
			if holdsBody.Value() != nil {
				t.Error("the body is held")
			}
			runtime.KeepAlive(turn)
		})
	}
}
