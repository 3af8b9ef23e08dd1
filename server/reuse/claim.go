package reuse

import (
	"context"

	"carryover/convcache"
	"carryover/server/pins"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// Claim is the ticket that an attempt has taken. Without a ticket it is a miss, whose leg may carry the release of an unused one.
type Claim struct {
	pins.Claim
	Choice
}

// Find proves how much of the conversation's KV this request may use on the attempt's pair, and takes the ticket. It runs as late as possible, after
// Prove: every earlier failure leaves the ticket in the store. It returns what was found, because it may also have looked up the conversation's
// content. without is the reason with which an earlier attempt ruled tickets out, "" for none.
func (t *Tickets) Find(ctx context.Context, p *Proof, f Found, without string) (claim Claim, _ Found) {
	why := p.excludes(without)
	switch {
	case why != "":
	case f.outcome != convcache.Found:
		why = t.nothing(p, f.outcome)
	case f.allHandedBack():
		why = record.ReasonHandBackUnreported // until prefill reports what it found
	default:
		if why = p.proof.Look(ctx); why == "" {
			claim, f, why = t.claim(ctx, p, f)
		}
	}
	if rewritten(why) || claim.Ticket != nil && !claim.Offer.Whole { // of an attempt that runs again, too
		claim.Differs = p.differs(f.Branches)
	}
	claim.Why = why
	p.IDs.Forward(claim.Ticket != nil)
	return claim, f
}

func (t *Tickets) nothing(p *Proof, looked convcache.Outcome) string {
	if looked != convcache.Empty {
		return missed(looked)
	}
	reason := p.unstored(p.Decode.Silence.Silent())
	if reason == record.ReasonNothingStored {
		for _, key := range p.Keys() {
			if why := t.deps.Pins.WhyGone(key); why != "" {
				return why
			}
		}
	}
	return reason
}

// claim takes a ticket that was found by the conversation's id or content. Some clients send one id for many conversations. So if the request does
// not continue what the id has found, claim looks up the content, too. A ticket that the request continues comes first.
func (t *Tickets) claim(ctx context.Context, p *Proof, f Found) (Claim, Found, string) {
	var content Found
	choices := t.cfg.choose(p, &f)
	if keys := p.ContentKeys(); len(keys) > 0 && !f.byContent && !continues(choices) {
		content = t.look(ctx, p.Admitted, keys, true)
		alike := t.cfg.choose(p, &content)
		if continues(alike) {
			choices, alike = alike, choices
		}
		choices = append(choices, alike...)
	}
	claim, why := t.take(ctx, p, choices)
	if len(choices) == 0 && f.dropped && len(f.Branches) == 0 {
		why = record.ReasonQuarantined
	}
	f.foreign = rewritten(why) && !f.byContent && len(p.Conversation.Content) > 0
	if claim.byContent && !f.byContent {
		content.foreign, content.learnt, content.continues = true, f.learnt, f.continues
		f = content
	}
	f.taken = claim.branch
	return claim, f, why
}

// take takes the first usable choice. If the ticket of one can't be used, it tries one more, unless the store does not answer. Without a claim it
// returns the reason of the miss.
func (t *Tickets) take(ctx context.Context, p *Proof, choices []Choice) (Claim, string) {
	why, takes := record.ReasonRewritten, 0
	for i := range choices {
		claim, asked, missed := t.takeBranch(ctx, p, &choices[i])
		switch {
		case missed == "":
			return claim, ""
		case asked:
			why = missed
			if takes++; takes == 2 || why == record.ReasonStoreUnavailable {
				return Claim{}, why
			}
		case takes == 0 && rewritten(why): // else a better branch has given the reason
			why = missed
		}
	}
	return Claim{}, why
}

// takeBranch takes the ticket of one branch from its holder. why is the reason if it can't: this pair can't use the branch now, there is no ticket,
// or it is not the one that the look-up showed. asked says that the store was asked.
func (t *Tickets) takeBranch(ctx context.Context, p *Proof, c *Choice) (claim Claim, asked bool, why string) {
	if c.Why != "" {
		return claim, false, c.Why
	}
	holder := t.holder(ctx, c.branch)
	if holder == nil {
		return claim, false, record.ReasonInstanceGone
	}
	taken, status, outcome := t.deps.Pins.Take(
		ctx, c.branch.Key, c.branch.ID, pins.Claim{Holder: holder, Reader: p.Prefill, PairState: p.Prefill.PairWith(holder), Account: p.Account}, p.Model, p.turn,
	)
	switch {
	case status == pairs.NoReuse:
		return claim, false, record.ReasonNotBidirectional
	case status == pairs.Busy:
		return claim, false, record.ReasonPairOnTrial
	case outcome == convcache.Consumed && t.deps.Pins.WhyGone(c.branch.Key) == record.ReasonHandingBack:
		return claim, true, record.ReasonHandingBack
	case outcome != convcache.Taken:
		return claim, true, missed(outcome)
	}
	claim = Claim{Claim: taken, Choice: *c}
	switch got := taken.Ticket.Branch; {
	case p.offers.Offer(got) != c.Offer || got.Decode != c.branch.Decode:
		why = record.ReasonRewritten
	case t.deps.Pins.Outdated(claim.Ticket): // an unreadable ticket passes: Plan reports what is wrong with it
		why = record.ReasonInstanceGone
	default:
		return claim, true, ""
	}
	claim.GiveUp()
	return claim, true, why
}

// holder returns the incarnation of decode that holds a branch. It returns nil if the engine has left, or runs as another incarnation: a restart
// frees the blocks. Probes and questions for ids may have taken seconds since the pair was picked, so the incarnation must be seen alive again.
func (t *Tickets) holder(ctx context.Context, b *convcache.KeyedBranch) *fleet.Incarnation {
	engine := t.deps.Fleet.Engine(upstream.RoleDecode, b.Decode.Instance)
	if engine == nil {
		return nil
	}
	current := engine.Current(ctx) // an engine that answers is reachable again
	if !engine.Reachable() || !current.Known() || current.ID() != b.Decode.Incarnation || engine.SleptSince(b.FreshAsOf) {
		return nil
	}
	return current
}

// Abandon gives up a claimed ticket that can't be used. The turn goes on with a miss.
func (c *Claim) Abandon(p *Proof, why string) {
	c.GiveUp()
	c.Why = why
	p.IDs.Forward(false)
}

// Settle ends a claim; further calls do nothing. It reports whether the ticket goes back into the store: nothing of it was sent.
func (t *Tickets) Settle(ctx context.Context, p *Proof, c *Claim) (back bool) {
	c.End(ctx, func(ctx context.Context, ticket convcache.Ticket) {
		back, c.Why = true, record.ReasonRetried
		t.deps.Pins.Put(ctx, c.branch.Key, ticket, p.Model)
	})
	return back
}
