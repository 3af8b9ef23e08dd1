package server

import (
	"bytes"
	"context"
	"time"

	"carryover/convcache"
)

// ticketWriter stores tickets and notes, and hands back or releases the tickets that they displace.
type ticketWriter struct {
	deps      *Deps
	ledger    *ledger
	releaser  *releaser
	handBacks *handBacks
}

// put stores a ticket or a note for the rest of its life. Tickets that it displaces are handed back or released, and the ticket itself is
// released if the store does not take it.
func (p *ticketWriter) put(ctx context.Context, key convcache.Key, ticket convcache.Ticket, model string) convcache.Outcome {
	displaced, outcome := p.deps.Store.Put(ctx, key, ticket, time.Until(ticket.Deadline))
	if outcome == convcache.Stored || outcome == convcache.Unavailable {
		p.ledger.put(key, &ticket, model)
	}
	for i := range displaced {
		p.displaced(&displaced[i], &ticket, model)
	}
	if outcome != convcache.Stored && outcome != convcache.Unavailable && !ticket.HandedBack() { // that may have been stored after all
		ticket.Params = bytes.Clone(ticket.Params) // they are a part of the answer, which would be kept with them
		p.releaser.unuse(ticket, model)
	}
	return outcome
}

// displaced hands back or releases a ticket that a new one has replaced. If the new one contains the old one, prefill has just computed all
// that the old one covers, so that there is nothing to hand back.
func (p *ticketWriter) displaced(old, by *convcache.Ticket, model string) {
	handedBack := !old.HandedBack() && old.Chain.Relation(by.Chain) != convcache.Contained && p.handBacks.displaced(old)
	p.ledger.gone(old.ID, convcache.Taken)
	if !handedBack && !old.HandedBack() {
		p.releaser.unuse(*old, model)
	}
}
