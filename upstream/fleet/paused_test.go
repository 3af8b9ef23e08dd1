package fleet

import (
	"net/http"
	"testing"

	"carryover/upstream"
	"carryover/upstream/fleet/health"
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
	r.pass(health.DownFor)
	if state, _ := engines[0].state(); engines[0].Health.Pauses() || state != "up" || r.pick() != "a" {
		t.Error("it is avoided for longer")
	}
}

// An engine that says whether it is paused is asked, and counts as paused no longer than it is.
func TestPaused_IsAskedWhetherItIsStill(t *testing.T) {
	for name, row := range map[string]struct {
		answer       http.HandlerFunc
		still, later bool // at once, and when it is avoided no more
	}{
		"still paused":   {answers(http.StatusOK, `{"is_paused":true}`), true, true},
		"goes on":        {answers(http.StatusOK, `{"is_paused":false}`), false, false},
		"does not tell":  {answers(http.StatusNotFound, `{}`), true, false},
		"tells nonsense": {answers(http.StatusOK, `{"is_paused":null}`), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			asked := 0
			e := r.engine(upstream.RoleDecode, func(w http.ResponseWriter, q *http.Request) {
				asked++
				row.answer(w, q)
			})
			if StillPaused(t.Context(), e) || asked != 0 {
				t.Error("an engine that has refused nothing is asked, or paused")
			}
			if e.Health.Paused(); StillPaused(t.Context(), e) != row.still || e.Health.Pauses() != row.still || asked != 1 {
				t.Errorf("behind its refusal: paused %t, asked %d times; want %t and once", e.Health.Pauses(), asked, row.still)
			}
			if r.pass(health.DownFor); StillPaused(t.Context(), e) != row.later || e.Health.Pauses() != row.later {
				t.Errorf("later: paused %t, want %t", e.Health.Pauses(), row.later)
			}
		})
	}
}
