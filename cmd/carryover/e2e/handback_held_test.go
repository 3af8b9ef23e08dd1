package e2e

import (
	"slices"
	"testing"

	"carryover/cmd/carryover/testrig"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// A hand-back that is under way when its prefill is quarantined ends well, decode is free, and what it has written serves no turn there.
func TestHandBack_PrefillIsQuarantinedDuringIt(t *testing.T) {
	t.Parallel()
	for _, at := range holdPoints() {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			h := startRig(t, rigConfig{cfg: handing, prefills: 2, decodes: 2, flags: atOnce})
			c := h.talk("quarantined")
			c.want(t, "miss;reason=first_turn")
			h.handedBack(t, ends{done: 1})
			release := h.hold(at)
			defer release()
			c.hits(t)
			h.held(t)
			for _, engine := range h.proxy.Fleet.Engines(upstream.RolePrefill) {
				if i := slices.IndexFunc(h.prefill, func(i *vllmsim.Instance) bool { return authority(i) == engine.Name }); h.prefill[i].Stats().HandBacks > 0 {
					engine.Current(t.Context()).Quarantine()
				}
			}
			release()
			h.handedBack(t, ends{done: 2})
			for n := range 2 {
				if a := c.turn(t); a.hit() && !byEngine(a.reuse()) {
					t.Errorf("X-KV-Reuse %q: the ticket was used again", a.reuse())
				}
				h.handedBack(t, ends{done: 3 + n})
			}
			h.verifyBack(t, 0)
		})
	}
}

// A ticket that waits behind a hand-back that prefill has stopped outlasts a prefill that refuses connections meanwhile.
func TestHandBack_PrefillRefusesBeforeIt(t *testing.T) {
	t.Parallel()
	h := startRig(t, rigConfig{cfg: handing, flags: atOnce})
	before, c := &listed{rig: h, id: "before"}, &listed{rig: h, id: "waits"}
	before.turn(t)
	h.handedBack(t, ends{done: 1})
	release := h.hold(vllmsim.HandBackComputed)
	defer release()
	before.turn(t)
	h.held(t)
	c.turn(t)
	h.hangUp() // a leg on an idle connection that prefill is about to close would count as sent
	h.setFault(t, h.prefill[0], vllmsim.Fault{Kind: vllmsim.FaultRefuse})
	release()
	if !testrig.Eventually(func() bool { got := h.ends(); return got.done+got.failed == 2 }) || h.store.unused() != 1 {
		t.Errorf("hand-backs: got %+v, and %d tickets in the store; want two at an end, and the third in the store", h.ends(), h.store.unused())
	}
	h.clearFaults(t, h.prefill[0])
	h.look()
	h.settle(t) // what was not begun is handed back now
	for range 2 {
		if a := c.turn(t); !a.hit() {
			t.Errorf("X-KV-Reuse %q, want a hit", a.reuse())
		}
		h.settle(t)
	}
	h.verifyBack(t, -h.store.unused())
}
