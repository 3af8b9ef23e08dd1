package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/convcache/redistest"
	"carryover/upstream/vllmsim"
)

// Conversations whose tickets are handed back between their turns.

// The next turn comes while the ticket is on its way, to the same replica or to another.
func TestHandBack_TheNextTurnRacesIt(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{1, 2} {
		for _, at := range holdPoints() {
			t.Run(fmt.Sprintf("%d replicas, %s", replicas, at), func(t *testing.T) {
				t.Parallel()
				first, second := startHandingTwice(t, replicas)
				c := first.talk("raced")
				c.want(t, "miss;")
				first.handedBack(t, ends{done: 1})
				release := first.hold(at)
				defer release()
				c.hits(t)
				first.held(t)
				c.rig = second
				a := c.turn(t)
				if strings.HasPrefix(a.reuse(), "hit;") && !byEngine(a.reuse()) {
					t.Errorf("X-KV-Reuse %q: the ticket was used twice", a.reuse())
				}
				if replicas == 1 && noHit(a.reuse()) != "miss;reason=handing_back" {
					t.Errorf("X-KV-Reuse %q, want that it is on its way", a.reuse())
				}
				release()
				first.settle(t)
				second.settle(t)
				first.free(t, 0)
				c.hits(t)
				first.settle(t)
				second.settle(t)
				c.rig = first
				c.hits(t)
				first.settle(t)
				if n := first.ends().done + second.ends().done; replicas == 2 && n != 5 || replicas == 1 && n != 10 {
					t.Errorf("handed back: %+v and %+v, want all five", first.ends(), second.ends())
				}
				if second != first {
					second.stop()
					second.saidNothing(t)
				}
				first.verifyBack(t, accounted{})
			})
		}
	}
}

func holdPoints() []vllmsim.HandBackPoint {
	return []vllmsim.HandBackPoint{vllmsim.HandBackQueued, vllmsim.HandBackRead, vllmsim.HandBackComputed}
}

// hold stops hand-backs at every prefill instance.
func (h *rig) hold(at vllmsim.HandBackPoint) (release func()) {
	var all []func()
	for _, instance := range h.prefill {
		all = append(all, instance.HoldHandBacks(at))
	}
	return func() {
		for _, release := range all {
			release()
		}
	}
}

// startHandingTwice runs one or two programs on the same instances, of one store.
func startHandingTwice(t *testing.T, replicas int) (first, second *rig) {
	t.Helper()
	if replicas == 1 {
		first = startHanding(t, handingConfig(), 2, 2, atOnce...)
		return first, first
	}
	c := rigConfig{
		cfg: handingConfig(), prefills: 2, decodes: 2, env: []string{testrig.ReplicaSecret},
		flags: append([]string{"--redis-url", "redis://" + redistest.Start(t).Addr()}, atOnce...),
	}
	first = startRig(t, c)
	c.cfg, c.beside = vllmsim.Config{}, first
	second = startRig(t, c)
	return first, second
}

// Whoever names no conversation has nothing in the store.
func TestHandBack_TurnsWithoutAConversation(t *testing.T) {
	t.Parallel()
	for mode, flags := range handBackModes() {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			h := startHanding(t, handingConfig(), 1, 2, append([]string{"--conversation-by-content", "off"}, flags...)...)
			var messages []json.RawMessage
			for turn := 1; turn <= 3; turn++ {
				messages = append(messages, question("SAY "+longText(turn)+"."))
				before := h.sum(t, config.RolePrefill)["local_hit_tokens"]
				members := map[string]any{"model": "sim", "messages": messages, "max_tokens": 400}
				a := h.alike(t, members)
				if noHit(a.reuse()) != "miss;reason=no_conversation" {
					t.Errorf("turn %d: X-KV-Reuse %q", turn, a.reuse())
				}
				if stored := h.turns.await(t, a.header.Get("X-Request-Id")).Stored; stored != "hand_back" {
					t.Errorf("turn %d: stored %q, want hand_back", turn, stored)
				}
				if found := h.sum(t, config.RolePrefill)["local_hit_tokens"] - before; turn > 1 && found < 100*(turn-1) {
					t.Errorf("turn %d found %d tokens in prefill's cache", turn, found)
				}
				h.handedBack(t, ends{done: turn})
				h.free(t, 0)
				messages = append(messages, a.assistant())
			}
			h.verifyBack(t, accounted{})
		})
	}
}

// alike asks, and wants what a lone instance answers.
func (h *rig) alike(t *testing.T, members map[string]any) *answered {
	t.Helper()
	right, err := vllmsim.Lone(t.Context(), h.cfg, "/v1/chat/completions", encode(members))
	if err != nil {
		t.Fatal(err)
	}
	a, err := h.post(t.Context(), "/v1/chat/completions", http.Header{}, encode(members), unwatched)
	if err != nil {
		t.Fatal(err)
	}
	want := &answered{status: http.StatusOK, ends: endsWhole}
	want.take(right, "message")
	if err := same(a, want); err != nil {
		t.Errorf("%s: %v", a.reuse(), err)
	}
	return a
}

// Equal conversations under several salts, of the client's own and of the program's for tenants.
func TestHandBack_TenantsWithSalts(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"the client's": nil, "the tenant's": {"--tenant-header", "X-Tenant", "--tenant-salt"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := startHanding(t, handingConfig(), 1, 1, append(flags, atOnce...)...)
			tenants := []string{"", "a", "b"}
			var messages []json.RawMessage
			for turn := 1; turn <= 3; turn++ {
				messages = append(messages, question("SAY "+longText(turn)+"."))
				var a *answered
				for _, tenant := range tenants {
					members := map[string]any{"model": "sim", "messages": messages, "max_tokens": 400, "conversation_id": "equal" + tenant}
					header := http.Header{}
					if tenant != "" {
						members["cache_salt"] = "salt of " + tenant
						header.Set("X-Tenant", tenant)
					}
					var err error
					if a, err = h.post(t.Context(), "/v1/chat/completions", header, encode(members), unwatched); err != nil {
						t.Fatal(err)
					}
					if a.content != longText(turn)+"." {
						t.Errorf("turn %d of %q: answered %q", turn, tenant, a.content)
					}
					if turn > 1 && !byEngine(a.reuse()) || turn == 1 && a.reuse() != "miss;reason=first_turn" {
						t.Errorf("turn %d of %q: X-KV-Reuse %q", turn, tenant, a.reuse())
					}
					h.settle(t)
				}
				messages = append(messages, a.assistant())
			}
			h.handedBack(t, ends{done: 9})
			h.free(t, 0)
			h.verifyBack(t, accounted{})
		})
	}
}

// Of an answer whose ids are not all known nothing is handed back: prefill would file KV under ids that are not its own.
func TestHandBack_WithoutAllIDsThereIsNone(t *testing.T) {
	t.Parallel()
	for _, plugIn := range []bool{false, true} {
		for _, kind := range []string{vllmsim.FaultLostID, vllmsim.FaultDoubledID} {
			t.Run(fmt.Sprintf("%s, plug-in %v", kind, plugIn), func(t *testing.T) {
				t.Parallel()
				cfg := handingConfig()
				cfg.OutputTokenIDs = plugIn
				h := startHanding(t, cfg, 1, 1, atOnce...)
				c := h.talk("lost")
				c.want(t, "miss;")
				h.handedBack(t, ends{done: 1})
				if err := h.decode[0].SetFault(vllmsim.Fault{Kind: kind, Count: 1}); err != nil {
					t.Fatal(err)
				}
				c.hits(t)
				h.handedBack(t, ends{done: 1})
				c.turn(t)
				h.handedBack(t, ends{done: 2})
				c.hits(t)
				h.handedBack(t, ends{done: 3})
				h.verifyBack(t, accounted{pins: 1})
			})
		}
	}
}
