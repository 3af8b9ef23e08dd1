package pins

import (
	"context"
	"errors"
	"testing"

	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// due1 has the blocks of a new answer wait for their release.
func (r *replica) due1(tokens int) *pin {
	ticket := r.answer(tokens)
	r.answered(&ticket)
	r.Unuse(&ticket, nil)
	return r.pins[ticket.ID]
}

// rides reports which legs may carry a release of the oldest pin now, which goes on waiting.
func (r *replica) rides(prefill *fleet.Incarnation) (turns, own bool) {
	now := r.now()
	for _, n := range r.holders[r.decode].due {
		state := prefill.PairWith(r.decode)
		return state.CarriesReleases() && n.releasable(prefill, false, now), state.Releases() && n.releasable(prefill, true, now)
	}
	return false, false
}

// ends ends a claim whose leg was sent; leg is how it failed, nil if it was answered.
func ends(c Claim, leg *upstream.LegError) {
	if c.Sent(); leg == nil {
		c.Conclude(pairs.Answered)
	} else {
		c.Doubted(leg)(false)
	}
	c.End(context.Background(), nil)
}

// unheard ends a claim of whose leg nothing more is known than that it was sent.
func unheard(c Claim) {
	c.Sent()
	c.End(context.Background(), nil)
}

func TestRelease_OfALegThatFails(t *testing.T) {
	for name, tc := range map[string]struct {
		leg    upstream.LegError
		turns  bool // turns may carry it again
		spares bool // legs of turns carry nothing for a while
	}{
		"not sent":               {upstream.LegError{Kind: upstream.Dial}, true, false},
		"client gone after":      {upstream.LegError{Kind: upstream.Gone, Sent: true}, false, false},
		"the client's own error": {upstream.LegError{Kind: upstream.Status, Status: 400, Sent: true}, false, false},
		"the engine's error":     {upstream.LegError{Kind: upstream.Status, Status: 500, Sent: true}, false, true},
		"no answer":              {upstream.LegError{Kind: upstream.Timeout, Sent: true, Err: upstream.ErrReuseTimeout}, false, true},
		"broken in the middle":   {upstream.LegError{Kind: upstream.Broken, Sent: true, Err: errors.New("reset")}, false, true},
		"unreadable good status": {upstream.LegError{Kind: upstream.Garbage, Sent: true}, false, true},
	} {
		r := alone(t)
		r.due1(10)
		ends(r.Piggyback(r.prefill), &tc.leg)
		if n, _, _ := r.Due(r.decode.Engine()); n != 1 {
			t.Errorf("%s: %d pins wait, want the one that is not certain to be released", name, n)
		}
		if turns, own := r.rides(r.prefill); turns != tc.turns || !own {
			t.Errorf("%s: turns may carry it: %t, legs of our own: %t", name, turns, own)
		}
		if carries := r.prefill.PairWith(r.decode).CarriesReleases(); carries == tc.spares {
			t.Errorf("%s: turns carry releases: %t", name, carries)
		}
	}
}

// Whether decode was told is open twice: the blocks count until decode's TTL ends, and no third leg names them.
func TestRelease_OpenTwiceLasts(t *testing.T) {
	r := alone(t)
	r.due1(10)
	for want := 1; want >= 0; want-- {
		unheard(r.ride(r.prefill, r.decode, true))
		if n, _, _ := r.Due(r.decode.Engine()); n != want {
			t.Errorf("%d pins wait, want %d", n, want)
		}
	}
	if r.states()[lost] != 10 {
		t.Errorf("%v", r.states())
	}
}

// A ticket whose leg was not answered may be read yet by the prefill incarnation that was sent it.
func TestRelease_UnansweredWaitsForItsReader(t *testing.T) {
	r := alone(t)
	n := r.due1(10)
	n.reader = r.prefill
	other := alone(t).prefill
	want := func(what string, prefill *fleet.Incarnation, turns, own bool) {
		t.Helper()
		if n.releasable(prefill, false, r.now()) != turns || n.releasable(prefill, true, r.now()) != own {
			t.Error(what)
		}
	}
	want("released before prefill has heard that the leg was dropped", r.prefill, false, false)
	r.model.passed.Add(int64(readerHears))
	want("not released by its reader, or by a turn's leg", r.prefill, false, true)
	want("released by an instance that does not know of the leg that was dropped", other, false, false)
}

func TestRelease_OnlyBetweenPairsThatHaveExchangedKV(t *testing.T) {
	r := alone(t)
	r.due1(10)
	other := alone(t).prefill
	strange, known := r.Piggyback(other), r.Piggyback(r.prefill)
	if strange.Carries() || !known.Carries() {
		t.Error("another pair carries it, or its own does not")
	}
}

// Legs of our own begin when many wait, when one has waited for long, or when that is asked for.
func TestRelease_DueByNumberOrByAge(t *testing.T) {
	r := alone(t) // its backlog is 1
	begun := 0
	r.deps.Background = func(string, string, func()) { begun++ }
	work := func(want int) {
		t.Helper()
		begun = 0
		if r.releases(t.Context()); begun != want {
			t.Errorf("%d begin, want %d", begun, want)
		}
		for _, h := range r.holders {
			h.releasing = false
		}
	}
	r.due1(10)
	work(0)
	r.model.passed.Add(int64(releaseAfter))
	work(1)
	ends(r.Piggyback(r.prefill), &upstream.LegError{Kind: upstream.Dial}) // it keeps its age
	work(1)
	ends(r.Piggyback(r.prefill), nil)
	work(0)
	r.due1(10)
	r.holders[r.decode].hurried = true
	work(1)
	ends(r.Piggyback(r.prefill), nil)
	work(0)
	r.due1(10)
	work(0) // the hurry has not outlived what it was for
	r.due1(10)
	work(1)
	r.prefill.PairWith(r.decode).ReleaseFailed(true)
	if r.prefill.PairWith(r.decode).Releases() || (*pairs.State)(nil).Releases() {
		t.Error("a pair that is paused, or is none, releases")
	}
}
