package fleet

import (
	"testing"

	"carryover/upstream"
)

// An engine that is paused gets no turns for a moment, and what it holds can still be read.
func TestPaused_IsAvoidedForAMoment(t *testing.T) {
	r := newRig(t)
	engines := r.named(upstream.RolePrefill, "a", "b")
	engines[0].Health.Paused()
	engines[0].Health.Answered() // the header of a stream that is then refused
	if got := r.pick(); got != "b" || !engines[0].Health.Pauses() || r.Up(upstream.RolePrefill) != 1 {
		t.Errorf("picked %s, %d up, want b alone", got, r.Up(upstream.RolePrefill))
	}
	if !engines[0].Reachable() {
		t.Error("what it holds can't be read any more")
	}
	if state, why := engines[0].state(); state != "paused" || why == "" {
		t.Errorf("it is %s: %s; want paused", state, why)
	}
	if got := r.pick("b"); got != "a" {
		t.Errorf("picked %s, want a, as no other is left", got)
	}
	r.pass(downFor)
	if state, _ := engines[0].state(); engines[0].Health.Pauses() || state != "up" || r.pick() != "a" {
		t.Error("it is avoided for longer")
	}
}
