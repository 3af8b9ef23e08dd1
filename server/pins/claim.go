package pins

import (
	"context"

	"carryover/convcache"
	"carryover/server/continuation"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// Claim is a ticket that a turn has taken. Only the turn uses it. A Claim without a ticket is a miss; its methods do nothing.
type Claim struct {
	Ticket    *convcache.Ticket  // nil once the claim has ended
	Holder    *fleet.Incarnation // the incarnation of decode that holds the blocks
	Reader    *fleet.Incarnation // the incarnation of prefill that will read them
	PairState *pairs.State       // the state of this pair, which learns the ticket's outcome
	Account   string             // the turn's account, "" for a leg of our own

	pins      *Pins
	turn      string
	progress  progress
	concluded bool // the pair's state knows the outcome
}

type progress uint8

const (
	unsent     progress = iota // nothing of the ticket was sent, so another leg may carry it
	unanswered                 // a byte of it may have reached prefill, which may read the blocks
	answered                   // prefill has read the blocks, so that decode has freed them
	refused                    // nobody reads the blocks, and the ticket is not used again
)

// Take takes a ticket out of the store. If the outcome is Taken, it returns a claim with of's pair, which must be ended by End or GiveUp. At most one
// caller gets a ticket. turn names the turn in the log.
func (p *Pins) Take(ctx context.Context, key convcache.Key, id convcache.TicketID, of Claim, model, turn string) (Claim, convcache.Outcome) {
	ticket, outcome := p.take(ctx, key, id, model)
	if outcome == convcache.Taken {
		of.Ticket, of.pins, of.turn = &ticket, p, turn
	}
	return of, outcome
}

func (p *Pins) become(id convcache.TicketID, to state) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.pins[id]; n != nil {
		p.move(n, to)
	}
}

// Sent records that the ticket is about to be sent to prefill.
func (c *Claim) Sent() {
	if c.Ticket != nil {
		c.progress = unanswered
		c.pins.become(c.Ticket.ID, sent)
	}
}

// Doubted records how the leg with the ticket has failed. The returned function tells the pair's state; spared means that the request was at fault.
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

// Conclude tells the pair's state the outcome of the ticket, once. It is called when prefill has answered, not at the end of the turn: decode may go
// on for minutes, and a trial of the pair would last as long.
func (c *Claim) Conclude(outcome pairs.Outcome) {
	if c.Ticket == nil || c.concluded {
		return
	}
	if c.concluded = true; outcome == pairs.Answered {
		c.progress = answered
	}
	c.pins.tell(c, outcome)
}

// GiveUp ends the claim of a ticket that can't be used. Nothing of it was sent.
func (c *Claim) GiveUp() {
	c.progress = refused
	c.End(context.Background(), nil)
}

// End ends the claim; further calls do nothing. If nothing of the ticket was sent, it calls putBack to store the ticket for the rest of its life. If
// prefill has answered, the blocks are free. Otherwise the blocks will be released.
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

// take takes a ticket or a note out of the store, for one caller at most. The outcome is Consumed if another taker has, or had, the blocks.
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

// GiveUp takes a ticket or a note that no turn may use out of the store, if it is still there. The ticket's blocks are released.
func (p *Pins) GiveUp(ctx context.Context, key convcache.Key, id convcache.TicketID, model string) {
	p.takeOut(ctx, &pin{id: id, Answer: Answer{Key: key, Model: model}, end: continuation.Release})
}

// takeOut takes a pin's ticket out of the store, and hands it back or releases it. was is a copy of the pin.
func (p *Pins) takeOut(ctx context.Context, was *pin) convcache.Outcome {
	ticket, outcome := p.take(ctx, was.Key, was.id, was.Model)
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

// GiveUpOlder gives up the tickets of all epochs but this one. Their blocks are released.
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
