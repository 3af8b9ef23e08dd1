package health

import (
	"slices"
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

// However many failures the requests may have caused, a question decides, one in five seconds. With others they ask sooner.
func TestCircuit_DoubtedFailuresOnlyAsk(t *testing.T) {
	r := newRole(t, 1)
	h := r.members[0].Health
	failure := &upstream.LegError{Kind: upstream.Status, Status: 500}
	asks := func(failures int, want bool) {
		t.Helper()
		for n := 1; n <= failures; n++ {
			if ask := h.Doubted(); ask != (want && n == failures) {
				t.Errorf("failure %d: asks %t", n, ask)
			}
		}
		if state, _ := h.State(); state != "up" {
			t.Errorf("it is %s", state)
		}
	}
	asks(FailuresToOpen, true)
	asks(2*FailuresToOpen, false) // while the answer is awaited
	h.Asked(nil)
	asks(FailuresToOpen-1, false)
	r.pass(askedFor)
	h.Failed(failure)
	asks(1, true)
	if h.Asked(failure); r.up(0) {
		t.Error("it has failed a question, and is still preferred")
	}
	if ask := h.Doubted(); ask {
		t.Error("what fails while the circuit is open asks")
	}
	r.pass(OpenFirst + askedFor)
	if ask := h.Doubted(); !ask {
		t.Error("what fails while it is half-open does not ask")
	}
	if h.Asked(nil); !h.Closed() {
		t.Error("an answer does not close it")
	}
}

// Operators are told what an engine is avoided for, and when that is over, in words that are the same each time.
func TestHealth_TellsOperatorsWhatAnEngineIsAvoidedFor(t *testing.T) {
	r := newRole(t, 3)
	a, b := r.members[0].Health, r.members[1].Health
	for range 2 {
		for range FailuresToOpen + 1 {
			a.Failed(&upstream.LegError{Kind: upstream.Status, Status: 503})
		}
		r.pass(time.Minute)
		a.Served()
		a.Served()
	}
	began := r.now
	r.pass(time.Minute)
	b.Failed(&upstream.LegError{Kind: upstream.Timeout})
	b.Unanswered(began)
	r.pass(time.Minute)
	b.Served()
	r.paced(slowRounds, 2000, 200, 200)
	Eject(r.members)
	r.pass(ejectFor)
	Eject(r.members)
	Eject(r.members)
	opened, closed := "a opens its circuit for 1s: 5 legs in a row have failed, the last with status 503", "a closes its circuit: it has served a leg"
	want := []string{
		opened, closed, opened, closed,
		"b opens its circuit for 1s: a leg has reached its time limit, and the engine has answered no other", "b closes its circuit: it has served a leg",
		"a is ejected for 30s (ejections in a row: 1): it is 10.0 times slower than the median of its role", "a is no longer ejected, and is compared again",
	}
	if !slices.Equal(r.told, want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(r.told, "\n"), strings.Join(want, "\n"))
	}
}
