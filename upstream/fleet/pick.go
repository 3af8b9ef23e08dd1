package fleet

import (
	"slices"
	"time"

	"carryover/upstream"
)

// Hint is what a pick knows of a turn.
type Hint struct {
	Key              string       // equal for all turns of a conversation, "" for none
	Holds            []Holding    // decode engines that hold the conversation's KV
	PrefixHints      []PrefixHint // prefill engines that the conversation was handed back to
	Model            string       // only engines that may serve it are picked; "" allows all
	AllowQuarantined bool         // quarantined engines may be picked too
	// Tokens is how many prompt tokens prefill is expected to compute if none is in its prefix cache.
	Tokens int
	// Chain has one hash for each piece of the prompt's beginning, over all text up to the piece's end.
	Chain []uint64
}

// Holding says that an incarnation of a decode engine holds KV of the conversation.
type Holding struct {
	Decode, Incarnation string // the instance's name, and the incarnation's id
	Tokens              int
}

// PrefixHint says that the conversation's KV was handed back to an incarnation of a prefill engine: that many tokens
// of its beginning are in the prefix cache there, unless they were evicted.
type PrefixHint struct {
	Prefill, Incarnation string // the instance's name, and the incarnation's id
	Tokens               int
}

// Pick picks an engine of the role and counts the turn as in flight there, with the tokens that it has to compute,
// until done is called; for prefill, done belongs to the end of its leg.
//
// Pick never picks engines for which exclude returns true (nil excludes none), engines that have MaxInFlight attempts,
// engines that are known not to serve the model, and quarantined ones unless the hint allows them. It picks engines to
// be avoided only if no other is left, and engines that are down only after these, so that an engine which only seems
// to be down delays no turn.
//
// Errors: upstream.ErrNoModel if all engines of the role, excluded or not, are known not to serve the model;
// upstream.ErrBusy if all that are left have MaxInFlight attempts; upstream.ErrNoInstance if none is left otherwise.
// exclude is called without a lock.
//
// A pick among a thousand engines takes less than 20 µs and allocates only done.
func (f *Fleet) Pick(role upstream.Role, hint Hint, exclude func(*Engine) bool) (_ *Engine, done func(), _ error) {
	engines, list := f.admitted(role, exclude)
	picked, number, err := f.pick(role, engines, list, &hint)
	if err != nil {
		return nil, nil, err
	}
	if role == upstream.RolePrefill && len(hint.Chain) > 0 {
		// Recorded before it is computed: of prompts that begin alike and arrive together, one is computed and the
		// others find it.
		if last := picked.seen.last.Load(); last.Known() {
			last.computed.Record(hint.Chain)
		}
	}
	return picked, func() {
		if picked.end(number) {
			f.freed()
		}
	}, nil
}

// admitted returns the engines of a role that exclude leaves. list is the borrowed list that they are in, nil if none
// was borrowed.
func (f *Fleet) admitted(role upstream.Role, exclude func(*Engine) bool) (engines, list []*Engine) {
	f.mu.Lock()
	engines = f.engines[role]
	if exclude == nil {
		f.mu.Unlock()
		return engines, nil
	}
	list = f.picking.borrow()
	f.mu.Unlock()
	for _, e := range engines {
		if !exclude(e) {
			list = append(list, e)
		}
	}
	return list, list
}

// pick picks one of the engines, begins an attempt on it, and gives the list back. If a policy panics, one turn fails
// and the lock is still released.
func (f *Fleet) pick(role upstream.Role, engines, list []*Engine, hint *Hint) (picked *Engine, number uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.picking.giveBack(list)
	if picked, err = f.choose(role, engines, hint, false); err != nil {
		return nil, 0, err
	}
	return picked, picked.begin(f.toCompute(picked, hint)), nil
}

// Predict returns the engine that Pick would pick now, or its error, and changes nothing. Where a policy draws at
// random, it returns one of the engines that might be drawn.
func (f *Fleet) Predict(role upstream.Role, hint Hint, exclude func(*Engine) bool) (*Engine, error) {
	engines, list := f.admitted(role, exclude)
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.picking.giveBack(list)
	return f.choose(role, engines, &hint, true)
}

// predictor is a policy that can say what its Pick would return without advancing its own state. A policy that is none
// keeps no state, and its Pick is called instead.
type predictor interface {
	Predict(candidates []upstream.Candidate, key string) int
}

// choose picks one of the engines; with predict it leaves the policy's state as it is. It needs f.mu.
func (f *Fleet) choose(role upstream.Role, engines []*Engine, hint *Hint, predict bool) (*Engine, error) {
	now := f.now()
	p := &f.picking
	ask := asked{
		now: now.Sub(f.born), model: hint.Model, most: f.cfg.MaxInFlight, tokens: float64(max(hint.Tokens, 1)),
		avoidQuarantined: role == upstream.RolePrefill && !hint.AllowQuarantined,
	}
	p.engines = p.engines[:0]
	busy := false
	for choosy := preferred; choosy <= whatever && len(p.engines) == 0 && !busy; choosy++ {
		busy = p.gather(engines, role, ask, choosy)
	}
	switch {
	case len(p.engines) > 0:
	case busy:
		return nil, upstream.ErrBusy
	default:
		return nil, f.none(role, hint.Model)
	}
	policy := f.cfg.Prefill
	if role == upstream.RoleDecode {
		policy = f.cfg.Decode
		f.hold(hint)
	} else {
		if len(hint.Chain) > 0 {
			f.picking.prompt = measure(hint)
			f.Prefixes.Find(hint.Chain, f.picking.round, &f.picking)
		}
		if len(hint.PrefixHints) > 0 {
			f.handedBack(hint)
		}
	}
	if f.stops.Load() > 0 {
		f.stop(role, hint, now)
	}
	if ahead, can := policy.(predictor); predict && can {
		return p.engines[ahead.Predict(p.candidates, hint.Key)], nil
	}
	return p.engines[policy.Pick(p.candidates, hint.Key)], nil
}

// none returns the error for a role without a candidate. It needs f.mu.
func (f *Fleet) none(role upstream.Role, model string) error {
	if engines := f.engines[role]; model == "" || len(engines) == 0 || slices.ContainsFunc(engines, func(e *Engine) bool {
		models := e.seen.models.Load()
		return models == nil || models.has(model, f.picking.round)
	}) {
		return upstream.ErrNoInstance
	}
	return upstream.ErrNoModel
}

// hold marks the candidates whose incarnation holds KV of the conversation. Its branches share their beginning, so the
// longest one counts. It needs f.mu.
func (f *Fleet) hold(hint *Hint) {
	named, p := f.named[upstream.RoleDecode], &f.picking
	for i := range hint.Holds {
		holding := &hint.Holds[i]
		e := named[holding.Decode]
		if e == nil || e.seen.place.Round != p.round {
			continue
		}
		if last := e.seen.last.Load(); last.Known() && last.id == holding.Incarnation {
			c := &p.candidates[e.seen.place.At]
			c.Holds = max(c.Holds, holding.Tokens)
		}
	}
}

// stop marks the candidates through which no ticket can be used now. It needs f.mu.
func (f *Fleet) stop(role upstream.Role, hint *Hint, now time.Time) {
	if role == upstream.RoleDecode {
		f.stopDecode(now)
	} else {
		f.stopPrefill(hint, now)
	}
}
