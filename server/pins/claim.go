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

	pins      *Pins
	turn      string
	progress  progress
	concluded bool // the pair's state has been told the outcome
}

// progress is how far a leg with a ticket has come.
type progress uint8

const (
	unsent     progress = iota // nothing of the ticket was sent, so that another leg may carry it
	unanswered                 // a byte of it may have reached prefill, which may read the blocks
	answered                   // prefill has read the blocks, so that decode has freed them
	refused                    // nobody reads the blocks, and the ticket is not used again
)

// Take takes a ticket out of the store, if the outcome is Taken, and makes it a claim of the pair that of names: End or GiveUp must follow. At
// most one caller ever gets it. turn names the turn in the log.
func (p *Pins) Take(ctx context.Context, key convcache.Key, id convcache.TicketID, of Claim, model, turn string) (Claim, convcache.Outcome) {
	ticket, outcome := p.take(ctx, key, id, model)
	if outcome == convcache.Taken {
		of.Ticket, of.pins, of.turn = &ticket, p, turn
	}
	return of, outcome
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
		c.progress = unanswered
		c.pins.become(c.Ticket.ID, sent)
	}
}

// Doubted notes how the leg with the ticket has failed. The returned function tells the pair's state; spared says that the request was at fault.
func (c *Claim) Doubted(leg *upstream.LegError) (tell func(spared bool)) {
	of := *c
	switch c.concluded = true; {
	case leg.Paused():
		c.progress = refused
	case !leg.Sent:
		c.progress = unsent
	default:
		c.progress = unanswered
	}
	return func(spared bool) {
		if spared {
			of.Conclude(pairs.Inconclusive)
		} else {
			of.Conclude(OutcomeOf(leg))
		}
	}
}

// Conclude tells the pair's state the outcome of the ticket, once. It is called when prefill has answered and not at the end of the turn,
// because decode may go on for minutes, and a trial of the pair would last as long.
func (c *Claim) Conclude(outcome pairs.Outcome) {
	if c.Ticket == nil || c.concluded {
		return
	}
	if c.concluded = true; outcome == pairs.Answered {
		c.progress = answered
	}
	c.pins.tell(c, outcome)
}

// GiveUp ends the claim of a ticket that can't be used, of which nothing was sent.
func (c *Claim) GiveUp() {
	c.progress = refused
	c.End(context.Background(), nil)
}

// End ends the claim. If nothing of the ticket was sent, putBack is called to put it into the store for the rest of its life. If it was sent
// and prefill answered, it is spent. If prefill did not answer, it is given up and will be released. Further calls do nothing.
func (c *Claim) End(ctx context.Context, putBack func(ctx context.Context, ticket convcache.Ticket)) {
	if c.Ticket == nil {
		return
	}
	c.Conclude(pairs.Inconclusive)
	ticket := c.Ticket
	c.Ticket = nil // a stream of minutes must not keep it in memory
	switch c.progress {
	case unsent:
		putBack(ctx, *ticket)
	case unanswered:
		c.pins.finish(ticket, continuation.Release, c.Reader)
	case answered:
		c.pins.become(ticket.ID, freed)
	case refused:
		c.pins.finish(ticket, continuation.Release, nil)
	}
}

// take takes a ticket or a note out of the store. At most one caller ever gets it. If the store returns a ticket whose blocks another taker has,
// the outcome is Consumed.
func (p *Pins) take(ctx context.Context, key convcache.Key, id convcache.TicketID, model string) (convcache.Ticket, convcache.Outcome) {
	ticket, outcome := p.deps.Store.Take(ctx, key, id)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch n := p.pins[id]; {
	case outcome == convcache.Taken && !ticket.HandedBack():
		if p.claim(key, &ticket, model) == nil {
			return convcache.Ticket{}, convcache.Consumed
		}
	case n == nil || n.state != stored && n.state != late: // a taker in this process was faster
	case outcome == convcache.Consumed || outcome == convcache.Taken: // or a note is in its place
		p.move(n, elsewhere)
	default: // nobody has it
		p.move(n, lost)
	}
	return ticket, outcome
}

// GiveUp takes a ticket or a note that no turn may use out of the store, if it is still there, and has the blocks of a ticket released.
func (p *Pins) GiveUp(ctx context.Context, key convcache.Key, id convcache.TicketID, model string) {
	p.takeOut(ctx, &pin{id: id, Answer: Answer{Key: key, Model: model}, end: continuation.Release})
}

// takeOut takes the ticket of what was a pin out of the store, which gives each ticket to one taker, and hands it back or has it released.
func (p *Pins) takeOut(ctx context.Context, was *pin) convcache.Outcome {
	bounded, cancel := storetime.Limit(ctx, p.cfg.StoreTimeout)
	defer cancel()
	ticket, outcome := p.take(bounded, was.Key, was.id, was.Model)
	if outcome == convcache.Taken && !ticket.HandedBack() && !p.finish(&ticket, was.end, nil) && was.why != "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.gaveUp) >= maxGaveUp {
			clear(p.gaveUp)
		}
		p.gaveUp[was.Key] = was.why
	}
	return outcome
}

// GiveUpOlder gives up the tickets of other epochs than this one, and has their blocks released.
func (p *Pins) GiveUpOlder(ctx context.Context, epoch int64) {
	p.mu.Lock()
	for _, n := range p.pins {
		switch {
		case n.epoch == epoch:
		case n.state == due && n.end == continuation.HandBack:
			p.due(n, n.ticket, continuation.Release)
		case n.state == stored && n.holder != nil:
			p.giveUp(n, continuation.Release, "")
		}
	}
	p.mu.Unlock()
	p.takeLate(ctx)
}
