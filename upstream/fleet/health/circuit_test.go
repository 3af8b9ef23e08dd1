package health

import (
	"strings"
	"testing"
	"time"

	"carryover/upstream"
)

// An engine that has answered no leg since one began that had no answer in time fails all of them: waiting for four more would cost as many
// clients that time.
func TestCircuit_OpensAtOnceWhereNothingIsAnswered(t *testing.T) {
	for name, row := range map[string]struct {
		answered bool // another leg, meanwhile
		want     string
	}{"nothing": {false, "open"}, "another leg": {true, "up"}} {
		r := newRole(t, 1)
		h, began := r.members[0].Health, r.now
		if r.pass(time.Second); row.answered {
			h.Answered()
		}
		r.pass(time.Minute)
		h.Failed(&upstream.LegError{Kind: upstream.Timeout})
		h.Unanswered(began)
		if state, why := h.State(); state != row.want || r.up(0) != row.answered || !row.answered && !strings.HasPrefix(why, "1 leg has failed since") {
			t.Errorf("%s was answered: it is %s (%s), want %s", name, state, why, row.want)
		}
		if n := r.logged("engine answers no leg and opens its circuit", "tried_again_in=1s"); n == 1 == row.answered {
			t.Errorf("%s was answered: %d lines in the log", name, n)
		}
	}
}

// What the log has called down is unreached until it answers anything.
func TestOutage_IsUnreachedUntilItAnswers(t *testing.T) {
	r := newRole(t, 1)
	h := r.members[0].Health
	h.Refused()
	if r.pass(DownFor); !h.Unreached() || h.HasAnswered() || !r.up(0) {
		t.Error("that it is avoided no more counts as an answer")
	}
	if h.Probed(true); h.Unreached() || !h.HasAnswered() {
		t.Error("it has answered a probe, and counts as unreached")
	}
}
