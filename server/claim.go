package server

import (
	"context"

	"carryover/convcache"
	"carryover/server/pins"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/server/storetime"
	"carryover/upstream"
)

// claim is what an attempt may reuse. A claim without a ticket is a miss.
type claim struct {
	pins.Claim
	offer   convcache.Offer // how much of the ticket this request may use
	legSent bool            // a byte of the leg to prefill may have reached an engine
	// had is how many tokens of the prompt the prefix caches of prefill hold without the ticket, as far as that is known.
	had []convcache.Prefilled
	// piggyback is the release of an unused ticket, on a leg that carries no ticket of its own.
	piggyback *pins.Release
}

// ticketOffer returns the offer that the connector gets, for a leg that computes these ids; the zero value for a claim without a ticket.
func (h *claim) ticketOffer(ids *proof.IDs) upstream.TicketOffer {
	if h.Ticket == nil {
		return upstream.TicketOffer{}
	}
	var reading any
	if parsed, ok := h.Ticket.Reading.(*upstream.TicketParams); ok {
		reading = parsed.Reading
	}
	return upstream.TicketOffer{
		Ticket: h.Ticket.Params, Reading: reading, Holder: h.Holder.Engine().Instance(), Tokens: h.offer.Tokens, BlockSize: h.Ticket.Chain.BlockSize,
		PromptIDs: ids.ForPrefill(),
	}
}

// abandon gives up a claimed ticket that can't be used. The turn goes on with a miss.
func (s *turns) abandon(t *turn, h *claim, why record.Reason) {
	h.GiveUp()
	t.record.Missed(why)
	t.ids.Forward(false)
}

// settle ends the claim: a ticket of which nothing was sent goes back into the store. A piggybacked release is settled in the same way.
// Further calls do nothing.
func (s *turns) settle(ctx context.Context, t *turn, h *claim) {
	if unused := h.piggyback; unused != nil {
		if h.legSent {
			unused.Sent()
		} else {
			unused.Requeue()
		}
		h.piggyback = nil
	}
	h.End(ctx, func(ctx context.Context, ticket convcache.Ticket) {
		t.record.Missed(record.ReasonRetried)
		bounded, cancel := storetime.Limit(ctx, s.cfg.StoreTimeout)
		defer cancel()
		s.tickets.put(bounded, t, ticket)
	})
}
