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
	Holds            []Holding // of decode engines, for the conversation's tickets
	PrefixHints      []Holding // of prefill engines, after hand-backs
	Model            string    // only engines that may serve it are picked; "" allows all
	AllowQuarantined bool      // for prefill
	// Tokens is what prefill is expected to compute with an empty prefix cache.
	Tokens int
	// Chain has one hash per piece of the prompt's beginning, over all text up to the piece's end.
	Chain []uint64
}

// Holding is KV of the conversation in an incarnation: a ticket's in decode, or a hand-back's in prefill's prefix cache, unless it was
// evicted.
type Holding struct {
	Instance, Incarnation string // name; id
	Tokens                int
}

// SetPolicies replaces the policies of both roles.
func (f *Fleet) SetPolicies(prefill, decode upstream.Policy) {
	f.picking.mu.Lock()
	defer f.picking.mu.Unlock()
	f.picking.prefill, f.picking.decode = prefill, decode
}

// SetMaxInFlight bounds the attempts per engine; 0 means no limit.
func (f *Fleet) SetMaxInFlight(n int) {
	f.picking.mu.Lock()
	f.picking.most = n
	f.picking.mu.Unlock()
	f.freed()
}

// OnFreed replaces the function that is called when an engine may have become free: an attempt ended, an engine answers
// again, or the limit or the set of engines changed. It is called on any goroutine, without a lock, and must not block.
func (f *Fleet) OnFreed(freed func()) { f.onFreed.Store(&freed) }

func (f *Fleet) freed() {
	if freed := f.onFreed.Load(); freed != nil {
		(*freed)()
	}
}

// Pick picks an engine of the role, and counts the turn and its tokens there until done is called, once. For prefill, done belongs to
// the end of its leg.
//
// Pick skips engines for which exclude returns true (nil excludes none; exclude must not pick), full ones, those known not to serve the model,
// and quarantined ones unless the hint allows them. It picks engines to be avoided only if no other is left, and engines that are down after
// these: an engine that only seems down delays no turn.
//
// Errors: upstream.ErrNoModel if all engines of the role, excluded or not, are known not to serve the model; upstream.ErrBusy if all that are
// left are full; otherwise upstream.ErrNoInstance.
//
// One lock serialises picks. If a policy panics, one turn fails and the lock is released. A pick among a thousand engines takes less
// than 20 µs and allocates only done.
func (f *Fleet) Pick(role upstream.Role, hint Hint, exclude func(*Engine) bool) (_ *Engine, done func(), _ error) {
	picked, tokens, number, err := f.choose(role, &hint, exclude, true)
	if err != nil {
		return nil, nil, err
	}
	if role == upstream.RolePrefill && len(hint.Chain) > 0 {
		// Recorded before it is computed: of prompts with one beginning that arrive together, prefill computes one and
		// the others find it.
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
			// Tokens that were handed back to the engine do not count: it would look busy with them, and another conversation's next turn
			// would avoid it.
			tokens -= int(p.prompt.spares(float64(p.candidates[at].Holds)))
		}
		number = picked.begin(tokens)
	}
	return picked, tokens, number, nil
}

// holds marks the decode candidates that hold KV of the conversation. Branches share their beginning, so the longest one
// counts.
func (p *picking) holds(named map[string]*Engine, holds []Holding) {
	for i := range holds {
		if e := named[holds[i].Instance]; e != nil && e.place.Round == p.round && holds[i].on(e.last.Load()) {
			c := &p.candidates[e.place.At]
			c.Holds = max(c.Holds, holds[i].Tokens)
		}
	}
}

func (h *Holding) on(i *Incarnation) bool { return i.Known() && i.id == h.Incarnation }

// handedBack marks the prefill candidates that the conversation was handed back to, and shortens their delay.
//
// The KV in the prefix cache includes the tokens that decode generated. It counts like a computed beginning of the prompt (package
// prefixindex), even if the prompt is too short for a chain. It is only a hint: engines evict what they like, and policies may avoid a busy
// engine.
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
		// A piece that has only begun counts: a hand-back extends beyond the last prompt, so it wins over an engine that has only that
		// prompt.
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

// spares returns how many tokens an engine need not compute if its prefix cache has this many. It always computes one.
func (p *prompt) spares(cached float64) float64 { return max(p.ours-max(p.whole-cached, 1), 0) }
