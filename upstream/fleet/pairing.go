package fleet

import (
	"fmt"
	"time"

	"carryover/upstream/fleet/pairs"
)

type pair struct {
	decode *Incarnation
	*pairs.State
}

// PairWith returns the state of this prefill incarnation with a decode incarnation, nil unless both are known. There is
// one pair per decode engine: a new decode incarnation replaces the old one's pair. If either has ended, only the
// caller has the returned state.
func (i *Incarnation) PairWith(decode *Incarnation) *pairs.State {
	if !i.Known() || !decode.Known() {
		return nil
	}
	return i.pairWith(decode)
}

// pairWith is PairWith for unknown incarnations, too.
func (i *Incarnation) pairWith(decode *Incarnation) *pairs.State {
	f := i.engine.fleet
	i.mu.Lock()
	defer i.mu.Unlock()
	if p := i.pairs[decode.engine]; p.decode == decode {
		return p.State
	}
	// unpair takes the same lock, and an engine is forgotten before it is unpaired, so no pair is left behind.
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

// StatusWith returns what Begin of the pair would return, and begins nothing.
func (i *Incarnation) StatusWith(decode *Incarnation) pairs.Status {
	if !i.Known() || !decode.Known() {
		return pairs.NoReuse
	}
	if known := i.known(decode); known != nil {
		return known.Status()
	}
	return pairs.Trial
}

func (i *Incarnation) known(decode *Incarnation) *pairs.State {
	i.mu.Lock()
	defer i.mu.Unlock()
	if p := i.pairs[decode.engine]; p.decode == decode {
		return p.State
	}
	return nil
}

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

// retry ends the stops of the pairs with the changed engine, or of all pairs if it is this incarnation's own engine.
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

// A failed load of KV does not tell its cause: decode alone may not reach prefill's side channel, or nobody may. So each
// pair counts its strikes, and a prefill incarnation counts strikes that different decode engines give it in a row.

// BeginLoad asks whether this prefill incarnation may hand KV over to a decode incarnation. The caller of a trial must
// call EndLoad. Unlike a ticket, a hand-over needs no known incarnation.
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

// EndLoad reports how a hand-over ended, as [pairs.State.EndLoad]. It tells operators of a pair that is left alone or used
// again, with attrs for the log. If several decode engines have failed, the whole prefill incarnation is stopped.
func (i *Incarnation) EndLoad(decode *Incarnation, outcome pairs.Outcome, attrs ...any) {
	pause, resumed := i.pairWith(decode).EndLoad(outcome)
	why := "decode fails to load prefill's KV"
	if i.blames(decode.engine, outcome) {
		longer, again := i.loads.EndLoad(outcome)
		if pause, resumed = max(pause, longer), resumed || again; longer > 0 {
			why = "several decode instances fail to load prefill's KV"
		}
	}
	if resumed {
		why = "decode loads prefill's KV again"
	}
	if resumed || pause > 0 {
		i.LeftAlone(decode, "are left alone", pause, why, attrs...)
	}
}

// blames reports whether an outcome counts for the whole prefill incarnation: a failure counts if another decode engine
// failed before it, or during the incarnation's trial.
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

// ApartFrom reports whether BeginLoad would refuse.
func (i *Incarnation) ApartFrom(decode *Incarnation) bool {
	_, all := i.loads.Apart()
	_, apart := i.known(decode).Apart()
	return all || apart
}

// LeftAlone tells operators that this prefill and decode are left alone for a pause, and why; after a pause of 0 they are used again. what says what
// they do not do meanwhile.
func (i *Incarnation) LeftAlone(decode *Incarnation, what string, pause time.Duration, why string, attrs ...any) {
	f, prefill := i.engine.fleet, i.engine.Name
	attrs = append([]any{"prefill", prefill + "@" + i.id, "decode", decode.engine.Name + "@" + decode.id, "why", why}, attrs...)
	if pause == 0 {
		f.cfg.Logger.Info("the pair is used again", attrs...)
		f.cfg.Tell(fmt.Sprintf("Prefill %s and decode %s are used together again: %s.", prefill, decode.engine.Name, why))
		return
	}
	f.cfg.Logger.Warn("the pair is left alone", append(attrs, "what", what, "tried_again_in", pause.String())...)
	f.cfg.Tell(fmt.Sprintf("Prefill %s and decode %s %s for %s: %s.", prefill, decode.engine.Name, what, pause, why))
}
