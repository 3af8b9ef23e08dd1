package server

import (
	"context"
	"slices"

	"carryover/convcache"
	"carryover/server/proof"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// finder finds what of its conversation an attempt may use.
type finder struct {
	cfg      *Config
	deps     *Deps
	ledger   *ledger
	releaser *releaser
	beside   *beside
}

// look asks the store what the conversation holds, before a pair is picked, so that the policies know it. Turns that can use
// nothing of it do not ask.
func (f *finder) look(ctx context.Context, t *turn) convcache.Outcome {
	if t.proof == nil || t.tries.withoutTicket != "" || t.proof.Opens() {
		return convcache.Empty
	}
	bounded, cancel := storeContext(ctx, f.cfg)
	defer cancel()
	var outcome convcache.Outcome
	t.branches, outcome = f.deps.Store.Peek(bounded, t.conversation.key)
	f.dropCleared(bounded, t)
	return outcome
}

// dropCleared gives up the branches whose blocks are gone because their engine has cleared its cache. Nothing is to be released of
// them. Every replica hears of that by itself, so that it holds for tickets of other replicas too.
func (f *finder) dropCleared(ctx context.Context, t *turn) {
	t.cleared = false
	t.branches = slices.DeleteFunc(t.branches, func(b convcache.Branch) bool {
		engine := f.deps.Fleet.Engine(upstream.RoleDecode, b.Decode)
		if engine == nil || !engine.Last().Void(b.CaughtUp) {
			return false
		}
		t.cleared = true
		ticket, outcome := f.deps.Store.Take(ctx, t.conversation.key, b.ID)
		f.ledger.gone(b.ID)
		if outcome == convcache.Taken {
			f.releaser.unuse(ticket, t.model)
		}
		return true
	})
}

// find proves how much of what the conversation holds this request may use on this pair, and takes it. It
// is called as late as possible, so that every earlier failure leaves the ticket
// where it is.
func (f *finder) find(ctx context.Context, t *turn, p *pair, looked convcache.Outcome) *held {
	t.begin(ctx, p, f.beside)
	h, reason := f.prove(ctx, t, p, looked)
	r := &t.record.Reuse
	r.Hit, r.Reason, r.Offered, r.Cached = h.ticket != nil, reason, h.offer.Tokens, -1
	if h.ticket != nil {
		r.CaughtUp = h.ticket.CaughtUp
	}
	t.ids.Forward(h.ticket != nil)
	return h
}

// begin begins the attempt's proof.
func (t *turn) begin(ctx context.Context, p *pair, work *beside) {
	t.ids, t.lacks = nil, ""
	switch {
	case t.proof == nil || p.prefill == nil && !p.barred:
	case p.barred:
		t.lacks = lacksBarred
	default:
		t.lacks = t.proof.Begin(ctx, proof.Attempt{
			TurnID: t.record.Turn, Prefill: p.prefill, Decode: p.decode, Authorization: t.authorization,
			Beside: func(f func()) { work.run("parity", t.record.Turn, f) },
		})
		t.ids = t.proof.IDs()
	}
}

// prove says how much may be used of what the conversation holds, and takes it.
func (f *finder) prove(ctx context.Context, t *turn, p *pair, looked convcache.Outcome) (*held, Reason) {
	if reason := t.excludes(p); reason != "" {
		return &held{}, reason
	}
	if looked != convcache.Found {
		reason := t.missed(p, looked)
		if reason == ReasonNothingStored && f.ledger.freed(t.conversation.key) {
			reason = ReasonReleasedForRoom
		}
		return &held{}, reason
	}
	if miss := t.proof.Look(ctx); miss != "" {
		return &held{}, Reason(miss)
	}
	return f.take(ctx, t, p)
}

// choice is a branch with what may be used of it.
type choice struct {
	branch convcache.Branch
	offer  convcache.Offer
}

// take takes the branch of which the request may use most. When another request
// was faster, or Redis has failed over since it was put, the next-best branch of
// the same look is tried, once.
func (f *finder) take(ctx context.Context, t *turn, p *pair) (*held, Reason) {
	var choices []choice
	for _, b := range t.branches {
		if o := t.proof.Offer(b); o.Tokens > 0 {
			choices = append(choices, choice{b, o})
		}
	}
	slices.SortStableFunc(choices, func(a, b choice) int { return b.offer.Tokens - a.offer.Tokens })
	reason := ReasonRewritten
	if t.cleared && len(t.branches) == 0 {
		reason = ReasonInstanceCleared
	}
	takes := 0
	for _, c := range choices {
		if c.offer.Tokens < f.cfg.ReuseMinTokens || float64(c.offer.Tokens) < f.cfg.ReuseMinShare*float64(c.branch.Tokens) {
			reason = ReasonBelowThreshold
			continue
		}
		holder := f.holder(ctx, p, c.branch)
		if holder == nil {
			reason = ReasonInstanceGone
			continue
		}
		if holder.Void(c.branch.CaughtUp) { // since the look
			reason = ReasonInstanceCleared
			continue
		}
		link := p.prefill.Link(holder)
		if why := admit(link); why != "" {
			reason = why
			continue
		}
		h, outcome := f.takeBranch(ctx, t, c, held{holder: holder, reader: p.prefill, link: link, offer: c.offer})
		if h != nil {
			return h, ""
		}
		reason = t.missed(p, outcome)
		if takes++; outcome != convcache.Consumed && outcome != convcache.Fenced || takes == 2 {
			break
		}
	}
	return &held{}, reason
}

// takeBranch completes h with one branch's ticket, which must be worth what the
// branch promised. Without a ticket the trial that admit may have begun is over,
// even if the store panics: a link whose trial never ends is lost to reuse.
func (f *finder) takeBranch(ctx context.Context, t *turn, c choice, h held) (_ *held, outcome convcache.Outcome) {
	defer func() {
		if h.ticket == nil {
			h.link.End(fleet.Inconclusive)
		}
	}()
	bounded, cancel := storeContext(ctx, f.cfg)
	defer cancel()
	ticket, outcome := f.deps.Store.Take(bounded, t.conversation.key, c.branch.ID)
	if outcome != convcache.Unavailable {
		f.ledger.gone(c.branch.ID)
	}
	if outcome != convcache.Taken {
		return nil, outcome
	}
	if got := ticket.Branch(); t.proof.Offer(got) != c.offer || got.Decode != c.branch.Decode || got.Start != c.branch.Start {
		f.releaser.unuse(ticket, t.model) // it is not what was looked at
		return nil, outcome
	}
	h.ticket = &ticket
	return &h, outcome
}

// admit asks whether a ticket may be offered on a link now.
func admit(link *fleet.Link) Reason {
	switch link.Begin() {
	case fleet.NoReuse:
		return ReasonNotBidirectional
	case fleet.Busy:
		return ReasonPairOnTrial
	}
	return ""
}

// holder returns the start of decode that holds a branch, if its engine is still there and in that start: after a
// restart the blocks are gone. Since the pair was picked its engines may have been probed and asked for ids, for seconds,
// so that a start which was read longer ago has to be seen alive again.
func (f *finder) holder(ctx context.Context, p *pair, b convcache.Branch) *fleet.Start {
	start := p.decode
	engine := start.Engine()
	if engine.Name != b.Decode {
		if engine = f.deps.Fleet.Engine(upstream.RoleDecode, b.Decode); engine == nil {
			return nil
		}
		start = engine.Current(ctx)
	}
	if !engine.Reachable() || !start.Known() || start.ID() != b.Start || !start.Alive(ctx) {
		return nil
	}
	return start
}

// storeContext bounds a store operation. It is detached: a client that leaves must
// not cut a take in half.
func storeContext(ctx context.Context, cfg *Config) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cfg.StoreTimeout)
}
