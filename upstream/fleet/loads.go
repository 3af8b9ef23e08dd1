package fleet

import (
	"time"

	"carryover/upstream/fleet/pairs"
)

// A decode instance that can't load what prefill hands over says nothing of why: prefill's side channel may be out of its
// reach, or out of everybody's. So each pair has its own strikes, and a prefill incarnation has strikes of its own, which
// count while different decode engines fail one after the other.

// BeginLoad asks for permission to hand KV of this prefill incarnation over to a decode incarnation. A caller that is
// the trial of one that was left alone must call EndLoad. Unlike a ticket a hand-over needs no known incarnation.
func (i *Incarnation) BeginLoad(decode *Incarnation) (ok, trial bool) {
	if i.engine.fleet.stops.Load() == 0 {
		return true, false
	}
	pair := i.pairWith(decode)
	own := pair.BeginLoad()
	if own == pairs.Busy || own == pairs.NoReuse {
		return false, false
	}
	all := i.loads.BeginLoad()
	if ok = all == pairs.Proven || all == pairs.Trial; !ok && own == pairs.Trial {
		pair.EndLoad(pairs.Inconclusive)
	}
	return ok, ok && (own == pairs.Trial || all == pairs.Trial)
}

// EndLoad reports how a hand-over to a decode incarnation ended, as [pairs.State.EndLoad]. all is whether several decode
// engines have failed, so that this prefill incarnation is left alone and not only the pair.
func (i *Incarnation) EndLoad(decode *Incarnation, outcome pairs.Outcome) (pause time.Duration, all, resumed bool) {
	pause, resumed = i.pairWith(decode).EndLoad(outcome)
	if i.blames(decode.engine, outcome) {
		longer, again := i.loads.EndLoad(outcome)
		pause, all, resumed = max(pause, longer), longer > 0, resumed || again
	}
	return pause, all, resumed
}

// blames reports whether an outcome counts for the prefill incarnation: a failure does behind one of another decode
// engine, and while the incarnation is tried again.
func (i *Incarnation) blames(decode *Engine, outcome pairs.Outcome) bool {
	_, apart := i.loads.Apart()
	i.mu.Lock()
	defer i.mu.Unlock()
	last := i.unreadBy
	switch outcome {
	case pairs.Inconclusive:
	case pairs.Answered:
		i.unreadBy = nil
	default:
		i.unreadBy = decode
		return apart || last != decode
	}
	return true
}

// ApartFrom reports whether BeginLoad would refuse a hand-over to a decode incarnation.
func (i *Incarnation) ApartFrom(decode *Incarnation) bool {
	_, all := i.loads.Apart()
	_, apart := i.known(decode).Apart()
	return all || apart
}
