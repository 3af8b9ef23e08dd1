package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"carryover/cmd/carryover/testrig"
	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/vllmsim"
)

// taughtLast is the shape of the last lesson.
const taughtLast = `chat;"tool_choice"="auto";"tools";"assistant":st;"system":s;"tool":s;"user":p;`

// startTaught starts a rig whose prefill instance is taught. The function waits until its incarnation has had all lessons.
func startTaught(t *testing.T, c rigConfig) (r *rig, await func()) {
	t.Helper()
	var engines *fleet.Fleet
	c.probed, c.replace = true, func(deps *server.Deps) { engines = deps.Fleet }
	r = startRig(t, c)
	last := ""
	return r, func() {
		t.Helper()
		if !testrig.Eventually(func() bool {
			for _, e := range engines.Engines(upstream.RolePrefill) {
				s := e.Fresh()
				if s.Known() && s.ID() != last && s.Parity.Of("sim", taughtLast) != facts.Unknown {
					last = s.ID()
					return true
				}
			}
			return false
		}) {
			t.Fatal("no incarnation of prefill was taught")
		}
	}
}

// send sends messages as a turn of a conversation, with members of its own.
func (r *rig) send(t *testing.T, id string, members map[string]any, messages ...json.RawMessage) *answered {
	t.Helper()
	body := map[string]any{"model": "sim", "messages": messages, "max_tokens": 400, "conversation_id": id}
	for name, value := range members {
		body[name] = value
	}
	a, err := r.post(t.Context(), "/v1/chat/completions", http.Header{}, encode(body), unwatched)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestTaught_TheFirstConversationHitsOnItsSecondTurn(t *testing.T) {
	cfg := vllmsim.DefaultConfig()
	r, taught := startTaught(t, rigConfig{cfg: cfg})
	taught()
	c := r.talk("first")
	c.want(t, "miss;reason=first_turn")
	c.want(t, "hit;")
	r.verify(t, pins{})
}

// A turn of a shape that nobody has taught uses nothing and teaches it, and the ticket that it did not use stays.
func TestTaught_ANewShapeIsLearntBesideATurnThatHasATicket(t *testing.T) {
	cfg := vllmsim.DefaultConfig()
	r, taught := startTaught(t, rigConfig{cfg: cfg})
	taught()
	messages := []json.RawMessage{question("SAY " + longText(1) + ".")}
	messages = append(messages, r.send(t, "new", nil, messages...).assistant(), question("SAY "+longText(2)+"."))
	unknown := map[string]any{"response_format": map[string]any{"type": "text"}}
	if got := noHit(r.send(t, "new", unknown, messages...).reuse()); got != "miss;reason=ineligible_unproven;why=shape" {
		t.Errorf("X-KV-Reuse %q, want a miss for the shape", got)
	}
	if n := r.store.unused(); n != 2 {
		t.Errorf("%d tickets, want that of the first turn and that of the second", n)
	}
	for _, members := range []map[string]any{unknown, nil} {
		if got := r.send(t, "new", members, messages...).reuse(); !strings.HasPrefix(got, "hit;") {
			t.Errorf("X-KV-Reuse %q, want a hit", got)
		}
	}
	r.verify(t, pins{})
}
