package fleet

import (
	"time"

	"carryover/upstream/fleet/pairs"
)

// pair is a pair of a prefill incarnation.
type pair struct {
	decode *Incarnation
	*pairs.State
}

// PairWith returns what is known of this prefill incarnation and a decode incarnation; nil unless both are known. A
// prefill incarnation has one pair for each decode engine: the pair with a new decode incarnation replaces the one
// before. If either incarnation has ended, the returned state is the caller's alone.
func (i *Incarnation) PairWith(decode *Incarnation) *pairs.State {
	if !i.Known() || !decode.Known() {
		return nil
	}
	return i.pairWith(decode)
}

// pairWith is PairWith also where an incarnation is not known: for as long as that is so.
func (i *Incarnation) pairWith(decode *Incarnation) *pairs.State {
	f := i.engine.fleet
	i.mu.Lock()
	defer i.mu.Unlock()
	if p := i.pairs[decode.engine]; p.decode == decode {
		return p.State
	}
	// Over is asked under the lock that unpair takes. An engine is marked as forgotten before it is
	// unpaired, so that no pair is left behind.
	if decode.Over() || i.Over() {
		return pairs.Over(f.facts.Now)
	}
	if old := i.pairs[decode.engine]; old.State != nil {
		old.Drop()
	}
	made := pairs.New(f.facts.Now, &i.stops, &decode.stops, &f.stops)
	i.pairs[decode.engine] = pair{decode, made}
	return made
}

// StatusWith returns what Begin would return for this prefill incarnation with a decode incarnation, and begins
// nothing.
func (i *Incarnation) StatusWith(decode *Incarnation) pairs.Status {
	if !i.Known() || !decode.Known() {
		return pairs.NoReuse
	}
	if known := i.known(decode); known != nil {
		return known.Status()
	}
	return pairs.Trial
}

// known returns the state of a pair that the incarnation has, nil if it has none.
func (i *Incarnation) known(decode *Incarnation) *pairs.State {
	i.mu.Lock()
	defer i.mu.Unlock()
	if p := i.pairs[decode.engine]; p.decode == decode {
		return p.State
	}
	return nil
}

// unpair drops the pairs with engines that are gone.
func (i *Incarnation) unpair(gone []*Engine) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, decode := range gone {
		if p := i.pairs[decode]; p.State != nil {
			p.Drop()
			delete(i.pairs, decode)
		}
	}
}

// retry ends the stops of this prefill incarnation's pairs with the changed engine; of all its pairs if its own engine
// has changed.
func (i *Incarnation) retry(changed *Engine) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for decode, p := range i.pairs {
		if decode == changed || i.engine == changed {
			p.Retry()
		}
	}
	if i.engine == changed {
		i.loads.Retry()
	}
}

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
