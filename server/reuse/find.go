package reuse

import (
	"context"
	"slices"

	"carryover/convcache"
	"carryover/server/pins"
	"carryover/server/record"
	"carryover/server/storetime"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// Finder finds the tickets of a conversation, and claims the one that an attempt may use. It is safe for concurrent use.
type Finder struct {
	cfg   *Config
	deps  *Deps
	names names
}

// Find proves how much of the conversation's KV this request may use on the attempt's pair, and takes the ticket. It is called as late as
// possible, after Proving.Begin, so that every earlier failure leaves the ticket in the store. A miss is a claim without a ticket; the record
// has the reason.
func (f *Finder) Find(ctx context.Context, p *Proving, looked *Lookup) *Claim {
	h, reason := f.prove(ctx, p, looked)
	h.of, h.looked, h.finder = p, looked, f
	r := p.record.Reuse()
	r.Proof = proofTokens
	r.Name = looked.fault(&p.request.Conversation, f.names.shared(&p.request.Conversation))
	r.Hit, r.Reason, r.Offered, r.Prefix, r.Cached, r.Read, r.Saved = h.Ticket != nil, reason, h.Offer.Tokens, 0, -1, 0, 0
	if !reason.Rewritten() {
		r.Differs = ""
	}
	if h.Ticket != nil {
		r.FreshAsOf = h.Ticket.FreshAsOf
		if !h.Offer.Whole {
			r.Differs = p.differs(looked.Branches)
		}
	}
	p.record.Reuses(r)
	p.IDs.Forward(h.Ticket != nil)
	return h
}

// prove compares the conversation's tickets with the request, and claims the one of most use. The reason is "" for a hit.
func (f *Finder) prove(ctx context.Context, p *Proving, looked *Lookup) (*Claim, record.Reason) {
	if reason := p.excludes(); reason != "" {
		return &Claim{}, reason
	}
	if looked.Outcome != convcache.Found {
		return &Claim{}, f.nothing(p, looked.Outcome)
	}
	if looked.AllHandedBack() {
		return &Claim{}, record.ReasonHandBackUnreported // until prefill reports what it found: see foundByEngine
	}
	if miss := p.proof.Look(ctx); miss != "" {
		return &Claim{}, record.Reason(miss)
	}
	h, reason := f.claim(ctx, p, looked)
	if reason.Rewritten() {
		r := p.record.Reuse()
		r.Differs = p.differs(looked.Branches)
		p.record.Reuses(r)
	}
	return h, reason
}

// claim takes a ticket that was found by the conversation's id, or by its content. Clients send one id for many conversations: where the
// request does not continue what the id has found, the content is asked too, and what it continues comes first.
func (f *Finder) claim(ctx context.Context, p *Proving, looked *Lookup) (h *Claim, reason record.Reason) {
	var found Lookup
	choices, why := p.choices(looked)
	if keys := p.request.ContentKeys(); len(keys) > 0 && !looked.byContent && !continues(choices) {
		found = f.look(ctx, p, keys, true)
		if others, why := p.choices(&found); continues(others) {
			if h, reason = f.take(ctx, p, &found, others, why); h.Ticket != nil {
				*looked = found
				looked.foreign = true
				return h, reason
			}
		}
	}
	h, reason = f.take(ctx, p, looked, choices, why)
	foreign := reason.Rewritten() && !looked.byContent && len(p.request.Conversation.Content) > 0
	if reason.Rewritten() && len(found.Branches) > 0 {
		others, why := p.choices(&found)
		if claim, why := f.take(ctx, p, &found, others, why); !why.Rewritten() {
			*looked, h, reason = found, claim, why
		}
	}
	looked.foreign = foreign
	return h, reason
}

// continues reports whether the request goes on where the first of its choices ends.
func continues(choices []choice) bool { return len(choices) > 0 && choices[0].offer.Whole }

// nothing returns the reason why the look-up found nothing.
func (f *Finder) nothing(p *Proving, looked convcache.Outcome) record.Reason {
	reason := p.missed(looked)
	if reason != record.ReasonNothingStored {
		return reason
	}
	for _, key := range p.request.Keys() {
		if why := f.deps.Pins.WhyGone(key); why != "" {
			return why
		}
	}
	return reason
}

// choice is a branch, and how much of it the request may use.
type choice struct {
	branch convcache.KeyedBranch
	offer  convcache.Offer
}

// take takes the branch of which the request may use the most tokens. If another request was faster, or Redis has failed over since the
// ticket was put, it tries the next-best branch of the same look, once. reason says why nothing is reused if there is no choice.
func (f *Finder) take(ctx context.Context, p *Proving, looked *Lookup, choices []choice, reason record.Reason) (*Claim, record.Reason) {
	takes := 0
	for _, c := range choices {
		usable, why := f.usable(ctx, p, looked, c)
		if why != "" {
			if reason.Rewritten() { // else a better branch has said it
				reason = why
			}
			continue
		}
		h, outcome, why := f.takeBranch(ctx, p, c, usable)
		if h != nil {
			looked.taken = c.branch
			return h, ""
		}
		if reason = why; reason == "" {
			reason = p.missed(outcome)
		}
		if reason == record.ReasonConsumed && f.deps.Pins.WhyGone(c.branch.Key) == record.ReasonHandingBack {
			reason = record.ReasonHandingBack
		}
		if takes++; why == "" && outcome != convcache.Consumed && outcome != convcache.Fenced || takes == 2 {
			break
		}
	}
	return &Claim{}, reason
}

// choices lists the branches that the request may use, in order. reason says why nothing is reused if the list is empty.
func (p *Proving) choices(looked *Lookup) (choices []choice, reason record.Reason) {
	for _, b := range looked.Branches {
		if o := p.proof.Offer(b.Branch); o.Tokens > 0 {
			choices = append(choices, choice{b, o})
		}
	}
	order(choices, looked.byContent)
	if looked.dropped != "" && len(looked.Branches) == 0 {
		return choices, looked.dropped
	}
	return choices, record.ReasonRewritten
}

// order puts the branch with most usable tokens first. Where they were found by content, branches of which it may use all
// come before others: a branch that would be cut may be of another conversation that began alike, and its own next turn would find it gone.
func order(choices []choice, byContent bool) {
	slices.SortStableFunc(choices, func(a, b choice) int {
		if byContent && a.offer.Whole != b.offer.Whole {
			if a.offer.Whole {
				return -1
			}
			return 1
		}
		return b.offer.Tokens - a.offer.Tokens
	})
}

// differs names the first part of the request that differs from what the conversation's branches cover; of several branches, it takes the
// one that agrees for longest. If all that led to an answer is equal, that is the part behind it: the answer was changed, or is rendered in
// another way. It returns "" if the turn may use all of each branch, or if no outline is known.
func (p *Proving) differs(branches []convcache.KeyedBranch) (part string) {
	most := -1
	for i := range branches {
		b := &branches[i].Branch
		if parts, known := p.outline.agrees(b); known && parts > most && !p.proof.Offer(*b).Whole {
			most, part = parts, p.request.API.PartName(parts)
		}
	}
	return part
}

// usable returns a claim with the incarnation of decode that holds a branch and the state of the pair that reads it, or the reason why
// this pair can't use the branch now.
func (f *Finder) usable(ctx context.Context, p *Proving, looked *Lookup, c choice) (_ Claim, why record.Reason) {
	pair := p.pair
	if c.offer.Tokens < f.cfg.MinTokens || float64(c.offer.Tokens) < f.cfg.MinShare*float64(c.branch.Tokens) {
		return Claim{}, record.ReasonBelowThreshold
	}
	if why := f.leavesToOthers(p, looked, c); why != "" {
		return Claim{}, why
	}
	holder := f.holder(ctx, pair.Decode, c.branch.Branch)
	if holder == nil {
		return Claim{}, record.ReasonInstanceGone
	}
	if c.branch.Epoch != f.deps.Epoch.Now() { // since the look
		return Claim{}, record.ReasonQuarantined
	}
	state := pair.Prefill.PairWith(holder)
	return Claim{Claim: pins.Claim{Holder: holder, Reader: pair.Prefill, PairState: state, Account: p.request.Account}, Offer: c.offer}, denies(state.Begin(p.request.Account))
}

// takeBranch takes the ticket of one branch and completes the claim h with it. The ticket must offer what the branch promised. If there is
// no ticket, outcome or why gives the reason, and the trial that usable may have begun ends, even if the store panics: a pair whose trial
// never ends would never reuse anything again.
func (f *Finder) takeBranch(ctx context.Context, p *Proving, c choice, h Claim) (_ *Claim, outcome convcache.Outcome, why record.Reason) {
	held := false
	defer func() {
		if !held {
			h.PairState.End(pairs.Inconclusive, h.Account)
		}
	}()
	bounded, cancel := storetime.Limit(ctx, f.cfg.StoreTimeout)
	defer cancel()
	tickets, model := f.deps.Pins, p.request.Model
	ticket, outcome := tickets.Take(bounded, c.branch.Key, c.branch.ID)
	if outcome != convcache.Taken {
		return nil, outcome, ""
	}
	h.Claim, h.key, held = tickets.Hold(&ticket, h.Claim, model, p.record.ID()), c.branch.Key, true
	if got := ticket.Branch; p.proof.Offer(got) != c.offer || got.Decode != c.branch.Decode {
		h.GiveUp() // the ticket is another than the look showed
		return nil, outcome, ""
	}
	if tickets.Outdated(&ticket) { // a ticket that can't be read passes: Plan reports what is wrong with it
		h.GiveUp()
		return nil, outcome, record.ReasonInstanceGone
	}
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
func (f *Finder) holder(ctx context.Context, decode *fleet.Incarnation, b convcache.Branch) *fleet.Incarnation {
	engine := decode.Engine()
	if engine.Name != b.Decode.Instance {
		if engine = f.deps.Fleet.Engine(upstream.RoleDecode, b.Decode.Instance); engine == nil {
			return nil
		}
		decode = engine.Current(ctx)
	}
	if !engine.Reachable() || !decode.Known() || decode.ID() != b.Decode.Incarnation || !decode.Alive(ctx) || engine.SleptSince(b.FreshAsOf) {
		return nil
	}
	return decode
}

// holderOf names an incarnation as tickets do.
func holderOf(incarnation *fleet.Incarnation) convcache.Holder {
	return convcache.Holder{Instance: incarnation.Engine().Name, Incarnation: incarnation.ID()}
}
