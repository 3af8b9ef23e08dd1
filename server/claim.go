package server

import (
	"context"
	"errors"
	"net/http"

	"carryover/convcache"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// claim is a ticket between its take and its fate.
type claim struct {
	ticket *convcache.Ticket
	holder *fleet.Incarnation // the start of decode whose blocks it names
	reader *fleet.Incarnation // the start of prefill that is to read them
	link   *fleet.PairState   // of the two; the ticket's fate tells about it
	offer  convcache.Offer    // how much of it this request may use
	// sent is true once a byte of it may have reached an engine; it is spent then,
	// whatever the engine says.
	sent      bool
	concluded bool // the link knows the ticket's fate
	answered  bool // prefill has answered, so that decode has freed the blocks
	paused    bool // prefill has refused the leg because it is paused, so that nobody reads the blocks
	pinned    int  // tokens of decode's cache that the ticket keeps from others
	// had is what prefix caches of prefill hold of the prompt by themselves, as far as that is known.
	had []convcache.Prefilled
	// piggyback is an unused ticket that rides on a leg without one.
	piggyback *piggyback
}

// ticketOffer is what the connector gets; the zero value without a ticket.
func (h *claim) ticketOffer(t *turn) upstream.TicketOffer {
	if h.ticket == nil {
		return upstream.TicketOffer{}
	}
	var reading any
	if kept, ok := h.ticket.Reading.(*upstream.Kept); ok {
		reading = kept.Reading
	}
	return upstream.TicketOffer{
		Ticket: h.ticket.Params, Reading: reading, Holder: h.holder.Engine().Instance(), Tokens: h.offer.Tokens, BlockSize: h.ticket.Chain.BlockSize,
		PromptIDs: t.ids.ForPrefill(),
	}
}

// abandon gives up a ticket that can't be used.
func (s *turns) abandon(t *turn, h *claim, why Reason) {
	s.conclude(t, h, fleet.Inconclusive)
	h.arrived(true)
	s.releaser.unuse(*h.ticket, t.model)
	h.ticket = nil
	t.record.Reuse.missed(why)
	t.ids.Forward(false)
}

// arrived ends the way of the ticket. freed says that decode has freed its blocks, or that they are counted elsewhere.
func (h *claim) arrived(freed bool) { h.holder.EndTransfer(h.pinned, h.ticket.FreshAsOf, freed) }

// settle says what became of a ticket, and of one that was to ride: nothing of it was sent, so it goes back
// with what is left of its life; or it was sent, and is spent, or given up to be released where prefill has not answered. A second time
// it does nothing.
func (s *turns) settle(ctx context.Context, t *turn, h *claim) {
	if unused := h.piggyback; unused != nil {
		if h.sent {
			unused.arrived(true)
			s.counts.ridden.sent.Add(1)
		} else {
			unused.holder.Leave(unused.unused)
			s.counts.ridden.requeued.Add(1)
		}
		h.piggyback = nil
	}
	ticket := h.ticket
	if ticket == nil {
		return
	}
	s.conclude(t, h, fleet.Inconclusive)
	defer h.holder.EndTransfer(h.pinned, ticket.FreshAsOf, true) // decode is free, or its blocks are counted elsewhere by then
	h.ticket = nil                                               // a stream of minutes must not hold it
	switch {
	case h.paused:
		s.releaser.unuse(*ticket, t.model) // what was sent is not used again, whatever an engine says of it
		return
	case h.sent && h.answered:
		s.releaser.spent(*ticket)
		return
	case h.sent:
		s.releaser.unanswered(*ticket, t.model, h.reader)
		return
	}
	t.record.Reuse.missed(ReasonRetried)
	bounded, cancel := storeContext(ctx, s.cfg)
	defer cancel()
	s.tickets.put(bounded, t, *ticket)
}

// conclude tells the link what became of a ticket, once. It is called
// when prefill has answered, not at the end of the turn: decode may go on for
// minutes, and the link would be on trial for as long.
func (s *turns) conclude(t *turn, h *claim, outcome fleet.Outcome) {
	if h.ticket == nil || h.concluded {
		return
	}
	h.concluded, h.answered = true, outcome == fleet.Answered
	s.releaser.tell(h.link, outcome, h.ticket, h.reader, h.holder, t.record.Turn)
}

// named is how the log names a start.
func named(incarnation *fleet.Incarnation) string {
	return incarnation.Engine().Name + "@" + incarnation.ID()
}

// outcomeOf is what the failure of a prefill leg says about the ticket that it
// carried. A connection that breaks says nothing: a busy API server closes idle
// ones while legs are written to them, several at a time, and where a ticket ends
// the engine core vLLM still answers 500 (entrypoints/launcher.py).
func outcomeOf(leg *upstream.LegError) fleet.Outcome {
	switch {
	case errors.Is(leg.Err, upstream.ErrTicketEnded): // the time that it had may have been short
		return fleet.Inconclusive
	case leg.Paused():
		return fleet.Inconclusive
	case leg.Kind == upstream.Timeout:
		return fleet.Unanswered
	case leg.Kind == upstream.Status && leg.Status >= http.StatusInternalServerError:
		return fleet.Failed
	}
	return fleet.Inconclusive
}
