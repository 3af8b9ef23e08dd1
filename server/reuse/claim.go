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
	// had is how many tokens of the prompt the prefix caches of prefill hold without the ticket, as far as that is known.
	had []convcache.Prefilled
}

// TicketOffer returns the offer that the connector gets, for a leg that computes the attempt's ids; the zero value for a claim without a
// ticket.
func (h *Claim) TicketOffer() upstream.TicketOffer {
	if h.Ticket == nil {
		return upstream.TicketOffer{}
	}
	var reading any
	if parsed, ok := h.Ticket.Reading.(*upstream.TicketParams); ok {
		reading = parsed.Reading
	}
	return upstream.TicketOffer{
		Ticket: h.Ticket.Params, Reading: reading, Holder: h.Holder.Engine().Instance(), Tokens: h.Offer.Tokens, BlockSize: h.Ticket.Chain.BlockSize,
		PromptIDs: h.of.IDs.ForPrefill(),
	}
}

// Abandon gives up a claimed ticket that can't be used. The turn goes on with a miss.
func (h *Claim) Abandon(why record.Reason) {
	h.GiveUp()
	h.of.record.Missed(why)
	h.of.IDs.Forward(false)
}

// Sent notes that the leg to prefill is about to be sent, with the ticket or the release that it carries.
func (h *Claim) Sent() {
	h.legSent = true
	h.Claim.Sent()
}

// Failed notes how the leg to prefill has failed.
func (h *Claim) Failed(leg *upstream.LegError) {
	h.legSent = leg.Sent
	h.Claim.Failed(leg)
	if h.Piggyback != nil {
		h.Piggyback.Failed(leg)
		h.Piggyback = nil
	}
}

// Settle ends the claim: a ticket of which nothing was sent goes back into the store. A piggybacked release is settled in the same way.
// Further calls do nothing.
func (h *Claim) Settle(ctx context.Context) {
	if unused := h.Piggyback; unused != nil {
		if h.legSent {
			unused.Sent()
		} else {
			unused.Requeue()
		}
		h.Piggyback = nil
	}
	h.End(ctx, func(ctx context.Context, ticket convcache.Ticket) {
		h.of.record.Missed(record.ReasonRetried)
		bounded, cancel := storetime.Limit(ctx, h.finder.cfg.StoreTimeout)
		defer cancel()
		h.of.put(bounded, h.finder.deps.Pins, h.key, ticket)
	})
}
