package e2e

import (
	"testing"

	"carryover/cmd/carryover/testrig"
)

// Prefill keeps no prefixes, so that what is handed back to it is lost at once: tickets serve turns as they would without hand-back.
func TestHandBack_NotToAPrefillWithoutPrefixCaching(t *testing.T) {
	t.Parallel()
	for mode, flags := range handBackModes() {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			cfg := handingConfig()
			cfg.NoPrefixCaching = true
			h := startHanding(t, cfg, 1, 1, flags...)
			c := h.talk("uncached")
			c.learnt(t)
			for range 3 {
				h.settle(t)
				if a := c.turn(t); !a.hit() || byEngine(a.reuse()) {
					t.Errorf("turn %d: X-KV-Reuse %q, want a hit by the ticket", c.asks, a.reuse())
				}
			}
			if h.atPrefill("hand_backs") != 0 {
				t.Errorf("handed back: %+v", h.ends())
			}
			if n := h.turns.count("WARN prefill does not keep what is handed back to it; tickets serve turns instead"); n != 1 {
				t.Errorf("the log says so %d times, want once", n)
			}
			h.verifyBack(t, accounted{})
		})
	}
}

// A cache that is too small for what is handed back until its turn comes teaches the same.
func TestHandBack_EvictionsInARowEndIt(t *testing.T) {
	t.Parallel()
	cfg := handingConfig()
	h := startHanding(t, cfg, 1, 1, atOnce...)
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
	h.verifyBack(t, accounted{})
}
