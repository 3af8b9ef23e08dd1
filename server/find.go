package server

import (
	"cmp"
	"context"
	"slices"

	"carryover/convcache"
	"carryover/server/background"
	"carryover/server/outline"
	"carryover/server/pick"
	"carryover/server/pins"
	"carryover/server/proof"
	"carryover/server/quarantine"
	"carryover/server/record"
	"carryover/server/storetime"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// finder finds the tickets of a conversation, and claims the one that an attempt may use.
type finder struct {
	cfg        *Config
	deps       *Deps
	pins       *pins.Pins
	background *background.Group
	outlines   *outline.Memory
	lineages   *quarantine.Lineages
	dryRun     bool // only predict: ask no engine, take no ticket, begin nothing
}

// look asks the store for the conversation's tickets. It runs before a pair is picked, so that the routing policies know where the KV is.
// A turn that can use no ticket does not ask.
func (f *finder) look(ctx context.Context, t *turn) convcache.Outcome {
	if t.proof == nil || !t.Conversation.Known || t.retry.withoutTicket != "" || t.proof.Opens() {
		return convcache.Empty
	}
	if !f.dryRun {
		f.pins.HandBacks.Await(ctx, t.Conversation.Key)
	}
	bounded, cancel := storetime.Limit(ctx, f.cfg.StoreTimeout)
	defer cancel()
	all, outcome := f.deps.Store.Peek(bounded, t.Conversation.Key)
	t.sort(all)
	f.dropCleared(bounded, t)
	f.dropInDoubt(bounded, t)
	return outcome
}

// find proves how much of the conversation's KV this request may use on this pair, and takes the ticket. It is called as late as possible,
// so that every earlier failure leaves the ticket in the store.
func (f *finder) find(ctx context.Context, t *turn, p *pick.Pair, looked convcache.Outcome) *claim {
	t.begin(ctx, p, f.background)
	h, reason := f.prove(ctx, t, p, looked)
	r := t.record.Reuse()
	r.Proof = t.way
	r.Hit, r.Reason, r.Offered, r.Cached, r.Read, r.Saved = h.Ticket != nil, reason, h.offer.Tokens, -1, 0, 0
	if !reason.Rewritten() {
		r.Differs = ""
	}
	if h.Ticket != nil {
		r.FreshAsOf = h.Ticket.FreshAsOf
	}
	t.record.Reuses(r)
	t.ids.Forward(h.Ticket != nil)
	return h
}

// begin starts the attempt's proof, after it has discarded that of the attempt before.
func (t *turn) begin(ctx context.Context, p *pick.Pair, work *background.Group) {
	t.ids.Forward(false) // a leg of the attempt before may still be sending the ids, so that their memory must not be reused
	t.discard()
	t.ids, t.lacks = nil, ""
	switch {
	case t.proof == nil || p.Prefill == nil && !p.Quarantined:
	case p.Quarantined:
		t.lacks = lacksQuarantined
	default:
		t.lacks = t.proof.Begin(ctx, proof.Attempt{
			TurnID: t.record.ID(), Prefill: p.Prefill, Decode: p.Decode, Authorization: t.Authorization,
			Background: func(f func()) { work.Run("parity", t.record.ID(), f) },
		})
		t.ids = t.proof.IDs()
	}
}

// prove compares the conversation's tickets with the request, and claims the one of most use. The reason is "" for a hit.
func (f *finder) prove(ctx context.Context, t *turn, p *pick.Pair, looked convcache.Outcome) (*claim, record.Reason) {
	if reason := t.excludes(p); reason != "" {
		return &claim{}, reason
	}
	if looked != convcache.Found {
		return &claim{}, f.nothing(t, p, looked)
	}
	if t.allHandedBack() {
		return &claim{had: t.had(false)}, record.ReasonHandBackUnreported // until prefill reports what it found: see foundByEngine
	}
	if miss := t.proof.Look(ctx); miss != "" {
		return &claim{}, record.Reason(miss)
	}
	h, reason := f.take(ctx, t, p)
	h.had = t.had(true)
	return h, reason
}

// nothing returns the reason why the look-up found nothing.
func (f *finder) nothing(t *turn, p *pick.Pair, looked convcache.Outcome) record.Reason {
	reason := t.missed(p, looked)
	if reason != record.ReasonNothingStored {
		return reason
	}
	return cmp.Or(f.pins.WhyGone(t.Conversation.Key), reason)
}

// choice is a branch, and how much of it the request may use.
type choice struct {
	branch convcache.Branch
	offer  convcache.Offer
}

// take takes the branch of which the request may use the most tokens. If another request was faster, or Redis has failed over since the
// ticket was put, it tries the next-best branch of the same look, once.
func (f *finder) take(ctx context.Context, t *turn, p *pick.Pair) (*claim, record.Reason) {
	choices, reason := t.choices()
	takes := 0
	for _, c := range choices {
		usable, why := f.usable(ctx, p, c)
		if why != "" {
			if reason.Rewritten() { // else a better branch has said it
				reason = why
			}
			continue
		}
		h, outcome, why := f.takeBranch(ctx, t, c, usable)
		if h != nil {
			return h, ""
		}
		if reason = why; reason == "" {
			reason = t.missed(p, outcome)
		}
		if reason == record.ReasonConsumed && f.pins.HandBacks.UnderWay(t.Conversation.Key) {
			reason = record.ReasonHandingBack
		}
		if takes++; why == "" && outcome != convcache.Consumed && outcome != convcache.Fenced || takes == 2 {
			break
		}
	}
	if reason.Rewritten() {
		r := t.record.Reuse()
		r.Differs = f.differs(t, func(b convcache.Branch) bool { return t.proof.Offer(b).Whole }).Position
		t.record.Reuses(r)
	}
	return &claim{}, reason
}

// choices lists the branches that the request may use, the one with most usable tokens first. reason says why nothing is reused if the
// list is empty.
func (t *turn) choices() (choices []choice, reason record.Reason) {
	for _, b := range t.branches {
		if o := t.proof.Offer(b); o.Tokens > 0 {
			choices = append(choices, choice{b, o})
		}
	}
	slices.SortStableFunc(choices, func(a, b choice) int { return b.offer.Tokens - a.offer.Tokens })
	if t.dropped != "" && len(t.branches) == 0 {
		return choices, t.dropped
	}
	return choices, record.ReasonRewritten
}

// differs returns the first position at which the turn's history differs from the histories of its conversation's branches; of several
// branches, it takes the one that agrees for longest. It returns the zero Difference if no branch differs, or if the outline is not known:
// another replica made the ticket, or the outline was displaced. whole reports whether the turn may use all of a branch.
func (f *finder) differs(t *turn, whole func(convcache.Branch) bool) (latest outline.Difference) {
	for _, b := range t.branches {
		if whole(b) {
			continue
		}
		if d := f.outlines.Compare(t.Conversation.Key, b.ID, t.outline); d.Position != "" && d.Later(latest) {
			latest = d
		}
	}
	return latest
}

// usable returns a claim with the incarnation of decode that holds a branch and the state of the pair that reads it, or the reason why
// this pair can't use the branch now.
func (f *finder) usable(ctx context.Context, p *pick.Pair, c choice) (_ claim, why record.Reason) {
	if c.offer.Tokens < f.cfg.ReuseMinTokens || float64(c.offer.Tokens) < f.cfg.ReuseMinShare*float64(c.branch.Tokens) {
		return claim{}, record.ReasonBelowThreshold
	}
	holder := f.holder(ctx, p, c.branch)
	if holder == nil {
		return claim{}, record.ReasonInstanceGone
	}
	if holder.Pins.Void(c.branch.FreshAsOf) { // since the look
		return claim{}, record.ReasonInstanceCleared
	}
	if f.lineages.InDoubt(c.branch.Lineage) { // since the look
		return claim{}, record.ReasonQuarantined
	}
	if f.dryRun {
		return claim{}, denies(p.Prefill.StatusWith(holder))
	}
	pairState := p.Prefill.PairWith(holder)
	return claim{Claim: pins.Claim{Holder: holder, Reader: p.Prefill, PairState: pairState}, offer: c.offer}, denies(pairState.Begin())
}

// takeBranch takes the ticket of one branch and completes the claim h with it. The ticket must offer what the branch promised. If there is
// no ticket, outcome or why gives the reason, and the trial that usable may have begun ends, even if the store panics: a pair whose trial
// never ends would never reuse anything again.
func (f *finder) takeBranch(ctx context.Context, t *turn, c choice, h claim) (_ *claim, outcome convcache.Outcome, why record.Reason) {
	defer func() {
		if h.Ticket == nil {
			h.PairState.End(pairs.Inconclusive)
		}
	}()
	bounded, cancel := storetime.Limit(ctx, f.cfg.StoreTimeout)
	defer cancel()
	ticket, outcome := f.pins.Take(bounded, t.Conversation.Key, c.branch.ID)
	if outcome != convcache.Taken {
		return nil, outcome, ""
	}
	if got := ticket.Branch; t.proof.Offer(got) != c.offer || got.Decode != c.branch.Decode {
		f.pins.Releases.Unuse(ticket, t.Model) // the ticket is another than the look showed
		return nil, outcome, ""
	}
	if f.pins.Releases.Outdated(&ticket) { // a ticket that can't be read passes: Plan reports what is wrong with it
		f.pins.Releases.Unuse(ticket, t.Model)
		return nil, outcome, record.ReasonInstanceCleared
	}
	h.Claim = f.pins.Hold(&ticket, h.Claim, t.Model, t.record.ID())
	return &h, outcome, ""
}

// denies returns the reason why a pair with this status may be offered no ticket, "" if it may.
func denies(status pairs.Status) record.Reason {
	switch status {
	case pairs.NoReuse:
		return record.ReasonNotBidirectional
	case pairs.Busy:
		return record.ReasonPairOnTrial
	}
	return ""
}

// holder returns the incarnation of decode that holds a branch, nil if the engine has left or runs as another incarnation: after a restart
// the blocks are gone. Probes and questions for ids may have taken seconds since the pair was picked, so that the incarnation must be
// seen alive again.
func (f *finder) holder(ctx context.Context, p *pick.Pair, b convcache.Branch) *fleet.Incarnation {
	incarnation := p.Decode
	engine := incarnation.Engine()
	if engine.Name != b.Decode.Instance {
		if engine = f.deps.Fleet.Engine(upstream.RoleDecode, b.Decode.Instance); engine == nil {
			return nil
		}
		if incarnation = engine.Last(); !f.dryRun {
			incarnation = engine.Current(ctx)
		}
	}
	if !engine.Reachable() || !incarnation.Known() || incarnation.ID() != b.Decode.Incarnation || !f.dryRun && !incarnation.Alive(ctx) {
		return nil
	}
	return incarnation
}
