package server

import (
	"context"

	"carryover/convcache"
	"carryover/server/pins"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/server/storetime"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// claim is the ticket of an attempt, from its take until its outcome is known. A claim without a ticket is a miss.
type claim struct {
	ticket    *convcache.Ticket
	holder    *fleet.Incarnation // the incarnation of decode that holds the blocks
	reader    *fleet.Incarnation // the incarnation of prefill that will read them
	pairState *pairs.State       // the state of the two, which learns from the ticket's outcome
	offer     convcache.Offer    // how much of the ticket this request may use
	// sent is true once a byte of the ticket may have reached an engine. The ticket can't be used again then, whatever the engine answers.
	sent      bool
	concluded bool // the pair's state has been told the outcome
	answered  bool // prefill has answered, so that decode has freed the blocks
	paused    bool // prefill has refused the leg because it is paused, so that nobody reads the blocks
	pinned    int  // tokens of decode's cache that the ticket pins
	// had is how many tokens of the prompt the prefix caches of prefill hold without the ticket, as far as that is known.
	had []convcache.Prefilled
	// piggyback is the release of an unused ticket, on a leg that carries no ticket of its own.
	piggyback *pins.Release
}

// ticketOffer returns the offer that the connector gets, for a leg that computes these ids; the zero value for a claim without a ticket.
func (h *claim) ticketOffer(ids *proof.IDs) upstream.TicketOffer {
	if h.ticket == nil {
		return upstream.TicketOffer{}
	}
	var reading any
	if parsed, ok := h.ticket.Reading.(*upstream.TicketParams); ok {
		reading = parsed.Reading
	}
	return upstream.TicketOffer{
		Ticket: h.ticket.Params, Reading: reading, Holder: h.holder.Engine().Instance(), Tokens: h.offer.Tokens, BlockSize: h.ticket.Chain.BlockSize,
		PromptIDs: ids.ForPrefill(),
	}
}

// abandon gives up a claimed ticket that can't be used. The turn goes on with a miss.
func (s *turns) abandon(t *turn, h *claim, why record.Reason) {
	s.conclude(t, h, pairs.Inconclusive)
	h.arrived(true)
	s.pins.Releases.Unuse(*h.ticket, t.Model)
	h.ticket = nil
	t.record.Missed(why)
	t.ids.Forward(false)
}

// arrived ends the ticket's transfer in the count of pinned tokens. freed says that decode has freed the blocks, or that they are counted
// elsewhere.
func (h *claim) arrived(freed bool) { h.holder.Pins.EndTransfer(h.pinned, h.ticket.FreshAsOf, freed) }

// settle ends the claim. If nothing of the ticket was sent, the ticket goes back into the store for the rest of its life. If it was sent
// and prefill answered, it is spent. If prefill did not answer, it is given up and will be released. A piggybacked release is settled in
// the same way. Further calls do nothing.
func (s *turns) settle(ctx context.Context, t *turn, h *claim) {
	if unused := h.piggyback; unused != nil {
		if h.sent {
			unused.Sent()
		} else {
			unused.Requeue()
		}
		h.piggyback = nil
	}
	ticket := h.ticket
	if ticket == nil {
		return
	}
	s.conclude(t, h, pairs.Inconclusive)
	defer h.holder.Pins.EndTransfer(h.pinned, ticket.FreshAsOf, true) // decode has freed the blocks by then, or they are counted elsewhere
	h.ticket = nil                                                    // a stream of minutes must not keep it in memory
	switch {
	case h.paused:
		s.pins.Releases.Unuse(*ticket, t.Model) // a ticket that was sent is not used again, whatever the engine answered
		return
	case h.sent && h.answered:
		s.pins.Releases.Spent(*ticket)
		return
	case h.sent:
		s.pins.Releases.Unanswered(*ticket, t.Model, h.reader)
		return
	}
	t.record.Missed(record.ReasonRetried)
	bounded, cancel := storetime.Limit(ctx, s.cfg.StoreTimeout)
	defer cancel()
	s.tickets.put(bounded, t, *ticket)
}

// conclude tells the pair's state the outcome of the ticket, once. It is called when prefill has answered and not at the end of the turn,
// because decode may go on for minutes, and a trial of the pair would last as long.
func (s *turns) conclude(t *turn, h *claim, outcome pairs.Outcome) {
	if h.ticket == nil || h.concluded {
		return
	}
	h.concluded, h.answered = true, outcome == pairs.Answered
	s.pins.Releases.Tell(h.pairState, outcome, h.ticket, h.reader, h.holder, t.record.ID())
}
