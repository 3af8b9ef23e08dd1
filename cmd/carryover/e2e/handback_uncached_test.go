package e2e

import (
	"testing"

	"carryover/cmd/carryover/testrig"
)

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
