package reuse

import (
	"context"

	"carryover/convcache"
	"carryover/server/pins"
	"carryover/server/record"
	"carryover/server/storetime"
	"carryover/upstream"
)

// Claim is what an attempt may reuse. A claim without a ticket is a miss.
type Claim struct {
	pins.Claim
	Offer convcache.Offer // how much of the ticket this request may use
	// Piggyback is the release of an unused ticket, on a leg that carries no ticket of its own.
	Piggyback *pins.Release

	key     convcache.Key // under which the ticket was stored
	of      *Proving
	looked  *Lookup
	finder  *Finder
	legSent bool // a byte of the leg to prefill may have reached an engine
}

// TicketOffer returns the offer that the connector gets, for a leg that computes the attempt's ids; the zero value for a claim without a
// ticket.
func (c *Claim) TicketOffer() upstream.TicketOffer {
	if c.Ticket == nil {
		return upstream.TicketOffer{}
	}
	var reading any
	if parsed, ok := c.Ticket.Reading.(*upstream.TicketParams); ok {
		reading = parsed.Reading
	}
	return upstream.TicketOffer{
		Ticket: c.Ticket.Params, Reading: reading, Holder: c.Holder.Engine().Instance(), Tokens: c.Offer.Tokens, BlockSize: c.Ticket.Chain.BlockSize,
		PromptIDs: c.of.IDs.ForPrefill(),
	}
}

// Abandon gives up a claimed ticket that can't be used. The turn goes on with a miss.
func (c *Claim) Abandon(why record.Reason) {
	c.GiveUp()
	c.of.record.Missed(why)
	c.of.IDs.Forward(false)
}

// Sent notes that the leg to prefill is about to be sent, with the ticket or the release that it carries.
func (c *Claim) Sent() {
	c.legSent = true
	c.Claim.Sent()
}

// Failed notes how the leg to prefill has failed. It returns a function that tells what follows for the pair; spared says that the request was
// at fault.
func (c *Claim) Failed(leg *upstream.LegError) (tell func(spared bool)) {
	c.legSent = leg.Sent
	ticket, unused := c.Doubted(leg), c.Piggyback
	c.Piggyback = nil
	return func(spared bool) {
		ticket(spared)
		switch {
		case unused == nil:
		case spared:
			unused.Spared()
		default:
			unused.Failed(leg)
		}
	}
}

// Settle ends the claim: a ticket of which nothing was sent goes back into the store. A piggybacked release is settled in the same way.
// Further calls do nothing.
func (c *Claim) Settle(ctx context.Context) {
	if unused := c.Piggyback; unused != nil {
		if c.legSent {
			unused.Sent()
		} else {
			unused.Requeue()
		}
		c.Piggyback = nil
	}
	c.End(ctx, func(ctx context.Context, ticket convcache.Ticket) {
		c.of.record.Missed(record.ReasonRetried)
		bounded, cancel := storetime.Limit(ctx, c.finder.cfg.StoreTimeout)
		defer cancel()
		c.of.put(bounded, c.finder.deps.Pins, c.key, ticket)
	})
}
