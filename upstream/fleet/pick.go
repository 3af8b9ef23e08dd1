package fleet

import (
	"math"
	"slices"

	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet/prefixindex"
)

// Hint is what a pick knows of a turn.
type Hint struct {
	Key              string    // equal for all turns of a conversation, "" for none
	Holds            []Holding // decode engines that hold the conversation's KV
	PrefixHints      []Holding // prefill engines that the conversation was handed back to
	Model            string    // only engines that may serve it are picked; "" allows all
	AllowQuarantined bool      // quarantined engines may be picked too
	// Tokens is how many prompt tokens prefill is expected to compute if none is in its prefix cache.
	Tokens int
	// Chain has one hash for each piece of the prompt's beginning, over all text up to the piece's end.
	Chain []uint64
}

// Holding says that an incarnation of an engine holds KV of so many tokens of the conversation: of decode for a ticket, of prefill in its
// prefix cache since a hand-back, unless it was evicted.
type Holding struct {
	Instance, Incarnation string // the instance's name, and the incarnation's id
	Tokens                int
}

// SetPolicies replaces the policies that pick the instances of the two roles.
func (f *Fleet) SetPolicies(prefill, decode upstream.Policy) {
	f.picking.mu.Lock()
	defer f.picking.mu.Unlock()
	f.picking.prefill, f.picking.decode = prefill, decode
}

// SetMaxInFlight sets how many attempts an engine may run at once; 0 means no limit.
func (f *Fleet) SetMaxInFlight(n int) {
	f.picking.mu.Lock()
	f.picking.most = n
	f.picking.mu.Unlock()
	f.freed()
}

// OnFreed sets the function that is called whenever an engine may have become free: an attempt ended, an engine
// answers again, or the limit or the set of engines changed. freed is called on any goroutine, without a lock, and
// must not block. It replaces the function that was set before.
func (f *Fleet) OnFreed(freed func()) { f.onFreed.Store(&freed) }

func (f *Fleet) freed() {
	if freed := f.onFreed.Load(); freed != nil {
		(*freed)()
	}
}

// Pick picks an engine of the role and counts the turn as in flight there, with the tokens that it has to compute,
// until done is called, once; for prefill, done belongs to the end of its leg.
//
// Pick never picks engines for which exclude returns true (nil excludes none), engines that have as many attempts as they may,
// engines that are known not to serve the model, and quarantined ones unless the hint allows them. It picks engines to
// be avoided only if no other is left, and engines that are down only after these, so that an engine which only seems
// to be down delays no turn.
//
// Errors: upstream.ErrNoModel if all engines of the role, excluded or not, are known not to serve the model;
// upstream.ErrBusy if all that are left have as many as they may; upstream.ErrNoInstance if none is left otherwise.
// exclude must not pick.
//
// Picks are made one after another, under one lock. If a policy panics, one turn fails and the lock is still released. A pick among a
// thousand engines takes less than 20 µs and allocates only done.
func (f *Fleet) Pick(role upstream.Role, hint Hint, exclude func(*Engine) bool) (_ *Engine, done func(), _ error) {
	picked, tokens, number, err := f.choose(role, &hint, exclude, true)
	if err != nil {
		return nil, nil, err
	}
	if role == upstream.RolePrefill && len(hint.Chain) > 0 {
		// Recorded before it is computed: of prompts that begin alike and arrive together, one is computed and the
		// others find it.
		if last := picked.last.Load(); last.Known() {
			last.computed.Record(hint.Chain)
		}
	}
	return picked, func() {
		picked.end(number, tokens)
		picked.fleet.freed()
	}, nil
}

// Choose returns an engine as Pick does, or its error, and begins no attempt there.
func (f *Fleet) Choose(role upstream.Role, hint Hint, exclude func(*Engine) bool) (*Engine, error) {
	picked, _, _, err := f.choose(role, &hint, exclude, false)
	return picked, err
}

// choose picks one of the engines. If it is to begin an attempt there, it returns the attempt's number and tokens.
func (f *Fleet) choose(role upstream.Role, hint *Hint, exclude func(*Engine) bool, begin bool) (picked *Engine, tokens int, number uint64, _ error) {
	p, engines := &f.picking, f.Engines(role)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clock, p.busy, p.engines = f.clock(), false, p.engines[:0]
	choosy := preferred
	if role == upstream.RoleDecode && f.stops.Load() > 0 {
		choosy = together
	}
	for ; choosy <= whatever && len(p.engines) == 0 && !p.busy; choosy++ {
		p.gather(role, engines, hint, exclude, choosy)
	}
	switch {
	case len(p.engines) > 0:
	case p.busy:
		return nil, 0, 0, upstream.ErrBusy
	case len(engines) == 0 || slices.ContainsFunc(engines, func(e *Engine) bool { return e.MayServe(hint.Model) }):
		return nil, 0, 0, upstream.ErrNoInstance
	default:
		return nil, 0, 0, upstream.ErrNoModel
	}
	named, policy, tokens := f.members.Load().named[role], p.decode, hint.Tokens
	if role == upstream.RoleDecode {
		p.holds(named, hint.Holds)
	} else {
		policy = p.prefill
		p.prompt = measure(hint)
		if len(hint.Chain) > 0 {
			f.Prefixes.Find(hint.Chain, p.round, p)
		}
		f.handedBack(named, hint)
	}
	if f.stops.Load() > 0 {
		f.markStopped(role, hint)
	}
	at := policy.Pick(p.candidates, hint.Key)
	picked = p.engines[at]
	if begin {
		if role == upstream.RolePrefill {
			// Tokens that were handed back to it do not count; otherwise it would look busy with them, and another conversation's next turn
			// would avoid it.
			tokens -= int(p.prompt.spares(float64(p.candidates[at].Holds)))
		}
		number = picked.begin(tokens)
	}
	return picked, tokens, number, nil
}

// holds marks the decode candidates whose incarnation holds KV of the conversation. Its branches share their beginning, so the
// longest one counts.
func (p *picking) holds(named map[string]*Engine, holds []Holding) {
	for i := range holds {
		if e := named[holds[i].Instance]; e != nil && e.place.Round == p.round && holds[i].on(e.last.Load()) {
			c := &p.candidates[e.place.At]
			c.Holds = max(c.Holds, holds[i].Tokens)
		}
	}
}

// on reports whether that incarnation is the one which holds the KV.
func (h *Holding) on(i *Incarnation) bool { return i.Known() && i.id == h.Incarnation }

// handedBack marks the prefill candidates that the conversation was handed back to, and subtracts what they need not compute
// from their delay.
//
// After a hand-back, the conversation's KV is in the prefix cache of one prefill incarnation, with the tokens that
// decode generated. It counts like a beginning of the prompt that the incarnation has computed (package prefixindex), even where the prompt is
// too short for a chain. It is only a hint: engines evict what they like, and policies may pass over an engine that is too busy.
func (f *Fleet) handedBack(named map[string]*Engine, hint *Hint) {
	p, prompt := &f.picking, &f.picking.prompt
	for i := range hint.PrefixHints {
		note := &hint.PrefixHints[i]
		e := named[note.Instance]
		if e == nil || e.place.Round != p.round || note.Tokens <= 0 || !note.on(e.last.Load()) || e.Quarantined() {
			continue
		}
		filled := float64(note.Tokens) / prompt.perPiece
		if f.Prefixes.Lacks(e.Cache, hint.Chain[:int(min(filled, float64(len(hint.Chain))))]) {
			continue
		}
		c := &p.candidates[e.place.At]
		c.Holds = max(c.Holds, note.Tokens)
		// A piece that has only begun counts: what was handed back extends beyond the last prompt, so it wins over an engine that has only
		// that prompt.
		pieces := int(math.Ceil(filled))
		if pieces <= c.Prefix { // the incarnation has computed all of it itself
			continue
		}
		if c.Delay > 0 {
			known := prompt.spares(float64(c.Prefix) * prompt.perPiece)
			c.Delay -= p.speed(e) * max(prompt.spares(float64(note.Tokens))-known, 0)
		}
		c.Prefix = pieces
	}
}

// prompt is how much there is to compute of a turn's prompt, in tokens.
type prompt struct {
	ours, whole float64 // what prefill computes; that plus what it reads from decode
	perPiece    float64 // tokens per piece of the chain
}

func measure(hint *Hint) (p prompt) {
	held := 0
	for i := range hint.Holds {
		held = max(held, hint.Holds[i].Tokens)
	}
	p.ours = float64(max(hint.Tokens, 1))
	p.whole = p.ours + float64(held)
	switch len(hint.Chain) {
	case 0:
		p.perPiece = prefixindex.TokensPerPiece
	case body.MaxChain: // the prompt may be longer than the chain
		p.perPiece = min(p.whole/body.MaxChain, prefixindex.TokensPerPiece)
	default:
		p.perPiece = p.whole / float64(len(hint.Chain))
	}
	return p
}

// spares returns how many tokens fewer an engine computes that has so many tokens in its prefix cache. It always computes
// at least one.
func (p *prompt) spares(cached float64) float64 { return max(p.ours-max(p.whole-cached, 1), 0) }
