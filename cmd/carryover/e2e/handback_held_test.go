package e2e

import (
	"slices"
	"testing"

	"carryover/cmd/carryover/testrig"
	"carryover/convcache/redistest"
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
	for n := range 2 {
		if a := c.turn(t); !a.hit() || n == 1 && !byEngine(a.reuse()) {
			t.Errorf("X-KV-Reuse %q, want a hit, by proof=engine at last", a.reuse())
		}
		h.settle(t)
	}
	h.verifyBack(t, -h.store.unused())
}

// A cache that is too small for what is handed back until its turn comes teaches the same.
func TestHandBack_EvictionsInARowEndIt(t *testing.T) {
	t.Parallel()
	h := startRig(t, rigConfig{cfg: handing, flags: atOnce})
	evict := func() { // what others do to a cache
		if !testrig.Eventually(func() bool { return h.atPrefill("running") == 0 }) {
			t.Fatal("prefill computes on")
		}
		for _, instance := range h.prefill {
			instance.ClearBlocks()
		}
	}
	c := h.talk("evicted")
	c.want(t, "miss;reason=first_turn")
	evicted := 0
	for range 12 {
		h.settle(t)
		evict()
		if a := c.turn(t); noHit(a.reuse()) == "miss;reason=handed_back_evicted" {
			evicted++
		} else if a.hit() && !byEngine(a.reuse()) {
			break
		}
	}
	if a := c.turn(t); evicted == 0 || evicted > 8 || !a.hit() || byEngine(a.reuse()) {
		t.Errorf("after %d turns that found nothing: X-KV-Reuse %q, want a hit by the ticket after eight at most", evicted, a.reuse())
	}
	if n := h.turns.count("WARN prefill does not keep what is handed back to it; tickets serve turns instead"); n != 1 {
		t.Errorf("the log says so %d times, want once", n)
	}
	h.settle(t)
	h.verifyBack(t, 0)
}

// Conversations whose tickets are handed back between their turns.

// The next turn comes while the ticket is on its way, to another replica. To the same one: testdata/scenarios/hand-back-held.yaml.
func TestHandBack_TheNextTurnRacesIt(t *testing.T) {
	t.Parallel()
	for _, at := range holdPoints() {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			c := rigConfig{cfg: handing, prefills: 2, decodes: 2, flags: atOnce, redis: redistest.Start(t).Addr()}
			first := startRig(t, c)
			c.sharing = first
			second, talk := startRig(t, c), first.talk("raced")
			settle := func() {
				first.settle(t)
				second.settle(t)
			}
			talk.want(t, "miss;")
			first.handedBack(t, ends{done: 1})
			release := first.hold(at)
			defer release()
			talk.hits(t)
			first.held(t)
			talk.rig = second
			if a := talk.turn(t); a.hit() && !byEngine(a.reuse()) {
				t.Errorf("X-KV-Reuse %q: the ticket was used twice", a.reuse())
			}
			release()
			settle()
			first.free(t)
			talk.hits(t)
			settle()
			talk.rig = first
			talk.hits(t)
			settle()
			if n := first.ends().done + second.ends().done; n != 5 {
				t.Errorf("handed back: %+v and %+v, want all five", first.ends(), second.ends())
			}
			second.stop()
			second.saidNothing(t)
			first.verifyBack(t, 0)
		})
	}
}

func holdPoints() []vllmsim.HandBackPoint {
	return []vllmsim.HandBackPoint{vllmsim.HandBackQueued, vllmsim.HandBackRead, vllmsim.HandBackComputed}
}

// hold stops hand-backs at every prefill instance.
func (r *rig) hold(at vllmsim.HandBackPoint) (release func()) {
	var all []func()
	for _, instance := range r.prefill {
		all = append(all, instance.HoldHandBacks(at))
	}
	return func() {
		for _, release := range all {
			release()
		}
	}
}
