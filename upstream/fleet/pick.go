package fleet

import (
	"slices"
	"time"

	"carryover/upstream"
)

// Hint is what the policy is told of a turn.
type Hint struct {
	Key              string       // equal for the turns of a conversation, "" without one
	Holds            []Holding    // where the conversation's KV is
	PrefixHints      []PrefixHint // which prefix caches it was handed back to
	Model            string       // only engines that may serve it are picked; "" is served by all
	AllowQuarantined bool         // engines that are barred may be picked too
	// Tokens is how many tokens of the prompt prefill is expected to compute, where nothing of it is in its prefix cache.
	Tokens int
	// Chain has one hash per piece of the beginning of the prompt, each over everything before it.
	Chain []uint64
}

// Holding says that a start of a decode instance holds KV of the conversation.
type Holding struct {
	Decode, Incarnation string // the instance's name, and the id of its start
	Tokens              int
}

// PrefixHint says that the KV of the conversation was handed back to a start of a prefill instance: so many tokens of its beginning are in
// that instance's prefix cache, unless they have been evicted.
type PrefixHint struct {
	Prefill, Incarnation string // the instance's name, and the id of its start
	Tokens               int
}

// Pick picks an engine of the role and counts it in flight, with the tokens of the hint that it has to compute, until done is called; for prefill
// that is when its leg has ended. Never picked are engines that exclude names, nil excluding none; those that have as many
// attempts as they may; those that are known not to serve the model; and those that are barred, unless the hint allows them.
// Ones that are to be avoided are picked only if no other is left, and ones that are down only after these, so that one wrongly
// held to be down delays no turn. It returns upstream.ErrNoModel if all engines of the role, excluded or not, are known not to
// serve the model; upstream.ErrBusy if all that could be picked have as many attempts as they may; and otherwise
// upstream.ErrNoInstance if none is left. Exclude is asked without a lock.
//
// A pick among a thousand engines takes less than 20 µs, and allocates done alone.
func (f *Fleet) Pick(role upstream.Role, hint Hint, exclude func(*Engine) bool) (_ *Engine, done func(), _ error) {
	engines, list := f.admitted(role, exclude)
	picked, number, err := f.pick(role, engines, list, &hint)
	if err != nil {
		return nil, nil, err
	}
	if role == upstream.RolePrefill && len(hint.Chain) > 0 {
		// Before it is computed: of prompts that begin alike and arrive together one is computed, the others find it.
		if last := picked.seen.last.Load(); last.Known() {
			f.prefixes.record(last, hint.Chain)
		}
	}
	return picked, func() {
		if picked.end(number) {
			f.freed()
		}
	}, nil
}

// admitted returns the engines of a role that exclude leaves, and the list that they are in if it is a borrowed one.
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

// pick picks one of the engines, begins an attempt on it, and gives the list back. A defect in a policy costs one turn, and not
// the lock.
func (f *Fleet) pick(role upstream.Role, engines, list []*Engine, hint *Hint) (picked *Engine, number uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.picking.giveBack(list)
	if picked, err = f.choose(role, engines, hint, false); err != nil {
		return nil, 0, err
	}
	return picked, picked.begin(f.toCompute(picked, hint)), nil
}

// Foresee returns the engine that Pick would pick now, or its error. Nothing is counted, tried or remembered. Of a policy that
// draws, it is one of those that may be drawn.
func (f *Fleet) Foresee(role upstream.Role, hint Hint, exclude func(*Engine) bool) (*Engine, error) {
	engines, list := f.admitted(role, exclude)
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.picking.giveBack(list)
	return f.choose(role, engines, &hint, true)
}

// foreseer is a policy that can say what Pick would return now, and leaves whose turn it is as it is. Of one that is none, and keeps
// nothing between its picks, Pick itself is asked.
type foreseer interface {
	Foresee(candidates []upstream.Candidate, key string) int
}

// choose picks one of the engines, or only says which it would be. It needs f.mu.
func (f *Fleet) choose(role upstream.Role, engines []*Engine, hint *Hint, foresee bool) (*Engine, error) {
	now := f.now()
	p := &f.picking
	ask := asked{
		now: now.Sub(f.born), model: hint.Model, most: f.cfg.MaxInFlight, tokens: float64(max(hint.Tokens, 1)),
		unbarred: role == upstream.RolePrefill && !hint.AllowQuarantined,
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
			f.prefix(hint)
		}
		if len(hint.PrefixHints) > 0 {
			f.handedBack(hint)
		}
	}
	if f.stops.Load() > 0 {
		f.stop(role, hint, now)
	}
	if ahead, can := policy.(foreseer); foresee && can {
		return p.engines[ahead.Foresee(p.candidates, hint.Key)], nil
	}
	return p.engines[policy.Pick(p.candidates, hint.Key)], nil
}

// none says why there is no candidate. It needs f.mu.
func (f *Fleet) none(role upstream.Role, model string) error {
	if engines := f.engines[role]; model == "" || len(engines) == 0 || slices.ContainsFunc(engines, func(e *Engine) bool {
		models := e.seen.models.Load()
		return models == nil || models.has(model, f.picking.round)
	}) {
		return upstream.ErrNoInstance
	}
	return upstream.ErrNoModel
}

// hold marks the candidates whose start holds KV of the conversation. Its branches share their beginning, so that of several
// the longest counts. It needs f.mu.
func (f *Fleet) hold(hint *Hint) {
	named, p := f.named[upstream.RoleDecode], &f.picking
	for i := range hint.Holds {
		holding := &hint.Holds[i]
		e := named[holding.Decode]
		if e == nil || e.round != p.round {
			continue
		}
		if last := e.seen.last.Load(); last.Known() && last.id == holding.Incarnation {
			c := &p.candidates[e.at]
			c.Holds = max(c.Holds, holding.Tokens)
		}
	}
}

// stop marks the candidates by way of which nothing can be reused now. It needs f.mu.
func (f *Fleet) stop(role upstream.Role, hint *Hint, now time.Time) {
	if role == upstream.RoleDecode {
		f.stopDecode(now)
	} else {
		f.stopPrefill(hint, now)
	}
}
