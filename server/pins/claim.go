package pins

import (
	"context"

	"carryover/convcache"
	"carryover/server/continuation"
	"carryover/server/storetime"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// Claim is a ticket that a turn has taken, until what became of it is known. Only the turn uses it. A Claim without a ticket is a miss, of
// which every method is a no-op.
type Claim struct {
	Ticket    *convcache.Ticket  // nil once the claim has ended
	Holder    *fleet.Incarnation // the incarnation of decode that holds the blocks
	Reader    *fleet.Incarnation // the incarnation of prefill that will read them
	PairState *pairs.State       // the state of the two, which learns from the ticket's outcome
	Account   string             // for whom the turn counts, "" for a leg of our own

	pins        *Pins
	model, turn string
	sent        bool // a byte of the ticket may have reached prefill, so that it can't be used again, whatever the engine answers
	concluded   bool // the pair's state has been told the outcome
	answered    bool // prefill has answered, so that decode has freed the blocks
	paused      bool // prefill has refused the leg because it is paused, so that nobody reads the blocks
}

// Take takes a ticket out of the store, if the outcome is Taken, and makes it a claim of the pair that of names: End or GiveUp must follow. At
// most one caller ever gets it. turn names the turn in the log.
func (p *Pins) Take(ctx context.Context, key convcache.Key, id convcache.TicketID, of Claim, model, turn string) (Claim, convcache.Outcome) {
	ticket, outcome := p.take(ctx, key, id)
	if outcome != convcache.Taken {
		return of, outcome
	}
	return p.hold(&ticket, of, model, turn), outcome
}

// hold makes a claim of a ticket that is out of the store.
func (p *Pins) hold(ticket *convcache.Ticket, of Claim, model, turn string) Claim {
	of.Ticket, of.pins, of.model, of.turn = ticket, p, model, turn
	return of
}

// become moves the pin of a ticket that is out of the store.
func (p *Pins) become(id convcache.TicketID, to state) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.pins[id]; n != nil {
		p.move(n, to)
	}
}

// Sent notes that the ticket is about to be sent to prefill.
func (c *Claim) Sent() {
	if c.Ticket != nil {
		c.sent = true
		c.pins.become(c.Ticket.ID, sent)
	}
}

// Failed notes how the leg with the ticket has failed.
func (c *Claim) Failed(leg *upstream.LegError) {
	if c.Ticket == nil {
		return
	}
	c.sent, c.paused = leg.Sent, leg.Paused()
	c.Conclude(OutcomeOf(leg))
}

// Doubted is Failed where it is not known yet whether the request is at fault, which the returned function is told.
func (c *Claim) Doubted(leg *upstream.LegError) (tell func(spared bool)) {
	of := *c
	if c.Ticket != nil {
		c.sent, c.paused, c.concluded = leg.Sent, leg.Paused(), true
	}
	return func(spared bool) {
		if spared {
			of.Conclude(pairs.Inconclusive)
		} else {
			of.Failed(leg)
		}
	}
}

// Conclude tells the pair's state the outcome of the ticket, once. It is called when prefill has answered and not at the end of the turn,
// because decode may go on for minutes, and a trial of the pair would last as long.
func (c *Claim) Conclude(outcome pairs.Outcome) {
	if c.Ticket == nil || c.concluded {
		return
	}
	c.concluded, c.answered = true, outcome == pairs.Answered
	c.pins.tell(c, outcome)
}

// GiveUp ends the claim of a ticket that can't be used, of which nothing was sent.
func (c *Claim) GiveUp() {
	if c.Ticket == nil {
		return
	}
	c.Conclude(pairs.Inconclusive)
	c.pins.Unuse(*c.Ticket, c.model)
	c.Ticket = nil
}

// End ends the claim. If nothing of the ticket was sent, putBack is called to put it into the store for the rest of its life. If it was sent
// and prefill answered, it is spent. If prefill did not answer, it is given up and will be released. Further calls do nothing.
func (c *Claim) End(ctx context.Context, putBack func(ctx context.Context, ticket convcache.Ticket)) {
	if c.Ticket == nil {
		return
	}
	c.Conclude(pairs.Inconclusive)
	ticket := *c.Ticket
	c.Ticket = nil // a stream of minutes must not keep it in memory
	switch {
	case c.paused: // a ticket that was sent is not used again, whatever the engine answered
		c.pins.Unuse(ticket, c.model)
	case c.sent && c.answered:
		c.pins.become(ticket.ID, freed)
	case c.sent:
		c.pins.finish(&ticket, c.model, continuation.Release, c.Reader)
	default:
		putBack(ctx, ticket)
	}
}

// take takes a ticket or a note out of the store. At most one caller ever gets it. If the store returns a ticket whose blocks another taker has,
// the outcome is Consumed.
func (p *Pins) take(ctx context.Context, key convcache.Key, id convcache.TicketID) (convcache.Ticket, convcache.Outcome) {
	ticket, outcome := p.deps.Store.Take(ctx, key, id)
	taken := outcome == convcache.Taken && !ticket.HandedBack()
	if taken {
		_, _ = p.read(&ticket) // what can't be read is found out when a leg is made of it
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.pins[id]
	switch {
	case taken:
		if p.claim(key, &ticket) == nil {
			return convcache.Ticket{}, convcache.Consumed
		}
	case n == nil || n.state != stored: // a taker in this process was faster
	case outcome == convcache.Consumed || outcome == convcache.Taken: // or a note is in its place
		p.move(n, elsewhere)
	default: // nobody has it
		p.move(n, lost)
	}
	return ticket, outcome
}

// GiveUp takes a ticket or a note that no turn may use out of the store, if it is still there, and has the blocks of a ticket released.
func (p *Pins) GiveUp(ctx context.Context, key convcache.Key, id convcache.TicketID, model string) {
	p.takeOut(ctx, &pin{key: key, id: id, model: model}, continuation.Release, "")
}

// takeOut takes the ticket of what was a pin out of the store, which gives each ticket to one taker, and hands it back or has it released, for a
// reason.
func (p *Pins) takeOut(ctx context.Context, was *pin, end continuation.End, why string) convcache.Outcome {
	bounded, cancel := storetime.Limit(ctx, p.cfg.StoreTimeout)
	defer cancel()
	ticket, outcome := p.take(bounded, was.key, was.id)
	if outcome == convcache.Taken && !ticket.HandedBack() && !p.finish(&ticket, was.model, end, nil) && why != "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.gaveUp) >= maxGaveUp {
			clear(p.gaveUp)
		}
		p.gaveUp[was.key] = why
	}
	return outcome
}

// GiveUpOlder gives up the tickets of other epochs than this one, and has their blocks released.
func (p *Pins) GiveUpOlder(ctx context.Context, epoch int64) {
	var older []pin
	p.mu.Lock()
	for _, n := range p.pins {
		switch {
		case n.epoch == epoch:
		case n.state == due && n.end == continuation.HandBack:
			p.due(n, n.ticket, continuation.Release)
		case n.state == stored && n.holder != nil:
			older = append(older, *n)
		}
	}
	p.mu.Unlock()
	for _, n := range older {
		if ctx.Err() != nil {
			return
		}
		p.takeOut(ctx, &n, continuation.Release, "")
	}
}
