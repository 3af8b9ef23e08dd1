package fleet

import (
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/pairs"
)

func TestPairState_OneTrialAtATime(t *testing.T) {
	r := newRig(t)
	p, d := r.incarnations()
	if got := p.PairWith(d).Begin(""); got != pairs.Trial {
		t.Fatalf("first ticket = %v, want Trial", got)
	}
	if got := p.PairWith(d).Begin(""); got != pairs.Busy {
		t.Errorf("second ticket during the trial = %v, want Busy", got)
	}
	other := tells(r.named(upstream.RoleDecode, "other")[0], "1")
	if got := p.PairWith(other).Begin(""); got != pairs.Trial {
		t.Errorf("another link = %v, want its own Trial", got)
	}
	p.PairWith(d).End(pairs.Answered, "")
	if got := p.PairWith(d).Begin(""); got != pairs.Proven {
		t.Errorf("after an answer = %v, want Proven", got)
	}
	q := tells(r.named(upstream.RolePrefill, "q")[0], "1")
	q.PairWith(d).End(pairs.Answered, "") // a pair on which no ticket was begun
	if got := q.PairWith(d).Begin(""); got != pairs.Trial {
		t.Errorf("a link on which no ticket was begun, answered = %v, want Trial", got)
	}
}

func TestPairState_AStoppedOneIsTriedAgainEverMoreRarely(t *testing.T) {
	for _, outcome := range []pairs.Outcome{pairs.Unanswered, pairs.Failed} {
		r := newRig(t)
		p, d := r.incarnations()
		ps := p.PairWith(d)
		for round := range 2 { // an answer forgets how often the pair was stopped
			for range pairs.Strikes - 1 {
				ps.Begin("")
				ps.End(pairs.Failed, "")
			}
			ps.Begin("")
			for i, minutes := range []time.Duration{1, 2, 4, 8, 16, 30, 30, 30} {
				want := minutes * time.Minute
				if got, resumed := ps.End(outcome, ""); got != want || resumed {
					t.Fatalf("round %d, stop %d: left alone for %v (resumed %v), want %v", round, i, got, resumed, want)
				}
				r.pass(want - 1)
				if got := ps.Begin(""); got != pairs.NoReuse || !ps.Stopped() {
					t.Fatalf("round %d, stop %d: %v just before its end, want NoReuse", round, i, got)
				}
				r.pass(1)
				if ps.Stopped() {
					t.Fatalf("round %d, stop %d: stopped at its end", round, i)
				}
				if got := ps.Begin(""); got != pairs.Trial {
					t.Fatalf("round %d, stop %d: %v at its end, want Trial", round, i, got)
				}
			}
			if pause, resumed := ps.End(pairs.Answered, ""); pause != 0 || !resumed {
				t.Fatalf("round %d: an answer gives pause %v, resumed %v", round, pause, resumed)
			}
		}
	}
}

// prove returns a pair that has answered.
func prove(p, d *Incarnation) *pairs.State {
	ps := p.PairWith(d)
	ps.Begin("")
	ps.End(pairs.Answered, "")
	return ps
}

func TestPairState_IsThatOfTwoIncarnations(t *testing.T) {
	r := newRig(t)
	p, d := r.incarnations()
	ps := prove(p, d)
	d.Engine().Refused()
	if p.PairWith(tells(d.Engine(), "1")) != ps {
		t.Error("the same start of decode has another link")
	}
	next := tells(d.Engine(), "2")
	of2 := p.PairWith(next)
	if of2 == ps || of2.Begin("") != pairs.Trial {
		t.Error("the next start of decode has the link of the one before")
	}
	of2.End(pairs.Answered, "")
	// An attempt may hold on to the incarnation that is over.
	if old := p.PairWith(d); old == of2 || old.Begin("") != pairs.Busy || p.PairWith(next) != of2 {
		t.Error("a start of decode that is over takes the place of the one that is alive")
	}
	if len(p.pairs) != 1 {
		t.Errorf("%d links with one engine", len(p.pairs))
	}
	p2 := tells(p.Engine(), "2")
	if p2.PairWith(next).Begin("") != pairs.Trial {
		t.Error("the next start of prefill has the link of the one before")
	}
	if p.PairWith(next).Begin("") != pairs.Busy || len(p.pairs) != 0 {
		t.Error("a start of prefill that is over has links")
	}
}

// A pair lasts as long as blocks may be pinned on an engine that was removed. A turn may hold on to a decode incarnation for longer.
func TestPairState_WithAForgottenEngineIsDropped(t *testing.T) {
	r := newRig(t)
	p, d := r.incarnations()
	prove(p, d)
	r.Set([]upstream.Instance{*p.Engine().Instance()})
	r.Set(r.instances)
	if got := p.PairWith(d).Begin(""); got != pairs.Proven {
		t.Errorf("with an engine that was away for a moment = %v, want Proven", got)
	}
	r.Set([]upstream.Instance{*p.Engine().Instance()})
	r.pass(unsetKVTTL)
	r.Set([]upstream.Instance{*p.Engine().Instance()})
	if len(p.pairs) != 0 {
		t.Error("the link outlives the engine")
	}
	if p.PairWith(d) == nil || len(p.pairs) != 0 {
		t.Error("the link is back, want one that its caller keeps")
	}
	r.Set(r.instances)
	if got := p.PairWith(tells(r.Engine(upstream.RoleDecode, "d"), "1")).Begin(""); got != pairs.Trial {
		t.Errorf("with an engine that has come back = %v, want Trial", got)
	}
}

func TestPairState_ANilOneDoesNothing(t *testing.T) {
	var ps *pairs.State
	ps.ExchangedKV()
	ps.ReleaseFailed(true)
	if pause, resumed := ps.End(pairs.Answered, ""); pause != 0 || resumed {
		t.Error("it has an end")
	}
	if ps.Releases() || ps.CarriesReleases() || ps.Begin("") != pairs.NoReuse {
		t.Error("it has something to give")
	}
}

// Turns that hold on to an incarnation that has ended offer it no ticket: each would be a trial of its own.
func TestPairState_OfAnIncarnationThatIsOverOffersNothing(t *testing.T) {
	r := newRig(t)
	p, d := r.incarnations()
	tells(r.Engine(upstream.RolePrefill, "p"), "2")
	for range 3 {
		if got := p.PairWith(d).Begin(""); got != pairs.Busy {
			t.Errorf("got %v, want none of them to be a trial", got)
		}
	}
}
