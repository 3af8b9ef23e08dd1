package pins

import (
	"cmp"
	"context"
	"net/http"

	"carryover/convcache"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// Claim is what a leg to prefill carries of a pin: a ticket that was taken out of the store, or the release of blocks that no turn uses. Only the
// leg's owner uses it. The zero value carries nothing, and its methods do nothing.
type Claim struct {
	Ticket    *convcache.Ticket    // nil for a release, and once the claim has ended
	Release   upstream.TicketOffer // the offer of a release
	Holder    *fleet.Incarnation   // the incarnation of decode that holds the blocks
	Reader    *fleet.Incarnation   // the incarnation of prefill that will read them
	PairState *pairs.State         // the state of this pair, which learns the outcome
	Account   string               // the turn's account, "" for a leg of our own

	pins      *Pins // nil once the claim has ended
	turn      string
	progress  progress
	concluded bool // the pair's state knows the outcome
	released  *pin // the pin of a release, nil for a ticket
	own       bool // the release is on a leg of our own, not on a turn's
}

// Carries reports whether the leg carries a ticket or a release.
func (c *Claim) Carries() bool { return c.pins != nil }

// Offered returns the connector's offer: of the release, or of the first tokens of the ticket, whose prompt has these ids (a JSON list).
func (c *Claim) Offered(tokens int, ids []byte) upstream.TicketOffer {
	if c.Ticket == nil {
		return c.Release
	}
	parsed, _ := c.pins.read(c.Ticket) // Plan reports what is wrong with an unreadable one
	return upstream.TicketOffer{
		Ticket: c.Ticket.Params, Reading: parsed.Reading, Holder: c.Holder.Engine().Instance(), Tokens: tokens, BlockSize: c.Ticket.Chain.BlockSize,
		PromptIDs: ids,
	}
}

type progress uint8

const (
	unsent     progress = iota // nothing was sent, so another leg may carry it
	unanswered                 // a byte of it may have reached prefill, which may read or release the blocks
	answered                   // decode has freed the blocks
	refused                    // nobody reads the blocks, and the ticket or release is not sent again
)

// Take takes a ticket out of the store, unless of's pair can't use it now, as status says. If the outcome is Taken, it returns a claim with of's pair,
// which must be ended by End or GiveUp. At most one caller gets a ticket. turn names the turn in the log.
func (p *Pins) Take(
	ctx context.Context, key convcache.Key, id convcache.TicketID, of Claim, model, turn string,
) (_ Claim, status pairs.Status, outcome convcache.Outcome) {
	if status = of.PairState.Begin(of.Account); status == pairs.NoReuse || status == pairs.Busy {
		return of, status, outcome
	}
	defer func() {
		if of.pins == nil { // the store may have panicked; a pair whose trial never ends would reuse nothing any more
			of.PairState.End(pairs.Inconclusive, of.Account)
		}
	}()
	ticket, outcome := p.take(ctx, key, id, model)
	if outcome == convcache.Taken {
		ticket.Account = cmp.Or(of.Account, ticket.Account)
		of.Ticket, of.pins, of.turn = &ticket, p, turn
	}
	return of, status, outcome
}

func (p *Pins) become(id convcache.TicketID, to state) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.pins[id]; n != nil {
		p.move(n, to)
	}
}

// Sent records that the leg is about to be sent.
func (c *Claim) Sent() {
	if c.progress = unanswered; c.Ticket != nil {
		c.pins.become(c.Ticket.ID, sent)
	}
}

// Doubted records how the leg has failed. The returned function tells the pair's state; spared means that the request was at fault.
func (c *Claim) Doubted(leg *upstream.LegError) (tell func(spared bool)) {
	switch release := c.released != nil; {
	case !leg.Sent, leg.Paused() && release:
		c.progress = unsent
	case leg.Paused():
		c.progress = refused
	case release && !c.own && leg.Kind == upstream.Status && leg.Status < http.StatusInternalServerError:
		// The engine refused the request before it was scheduled, most likely because of what the client sent. If the release were the reason, every
		// turn that carries it would fail.
		c.released.tried, c.progress = true, unsent
	default:
		c.progress = unanswered
	}
	of := *c
	c.concluded = true
	return func(spared bool) {
		switch {
		case of.released != nil:
			if !spared && of.progress == unanswered && (of.own || leg.Kind != upstream.Gone) {
				of.PairState.ReleaseFailed(of.own)
			}
		case spared:
			of.Conclude(pairs.Inconclusive)
		default:
			of.Conclude(OutcomeOf(leg))
		}
	}
}

// Conclude tells the pair's state the outcome, once. It is called when prefill has answered, not at the end of the turn: decode may go on for
// minutes, and a trial of the pair would last as long.
func (c *Claim) Conclude(outcome pairs.Outcome) {
	if c.pins == nil || c.concluded {
		return
	}
	if c.concluded = true; outcome == pairs.Answered {
		c.progress = answered
	}
	if c.Ticket != nil {
		c.tell(outcome)
	}
}

// GiveUp ends the claim of a ticket or a release that can't be used. Nothing of it was sent.
func (c *Claim) GiveUp() {
	c.progress = refused
	c.End(context.Background(), nil)
}

// End ends the claim; further calls do nothing. If nothing of a ticket was sent, it calls putBack to store the ticket for the rest of its life. If
// prefill has answered, the blocks are free. Otherwise the blocks will be released.
func (c *Claim) End(ctx context.Context, putBack func(ctx context.Context, ticket convcache.Ticket)) {
	if c.pins == nil {
		return
	}
	c.Conclude(pairs.Inconclusive)
	p, ticket := c.pins, c.Ticket
	c.Ticket, c.pins = nil, nil // a stream of minutes must not keep it in memory
	switch {
	case ticket == nil:
		p.released(c)
	case c.progress == unsent:
		putBack(ctx, *ticket)
	case c.progress == unanswered:
		p.Unuse(ticket, c.Reader)
	case c.progress == answered:
		p.become(ticket.ID, freed)
	default:
		p.Unuse(ticket, nil)
	}
}

// take takes a ticket or a note out of the store, for one caller at most. The outcome is Consumed if another taker has, or had, the blocks.
func (p *Pins) take(ctx context.Context, key convcache.Key, id convcache.TicketID, model string) (convcache.Ticket, convcache.Outcome) {
	ticket, outcome := p.deps.Store.Take(ctx, key, id)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch n := p.pins[id]; {
	case outcome == convcache.Taken && !ticket.HandedBack():
		if n = p.claim(key, &ticket, model); n == nil {
			return convcache.Ticket{}, convcache.Consumed
		}
		ticket.Account = n.Account // a store that replicas share does not keep it
	case n == nil || n.state != stored && n.state != late: // a taker in this process was faster
	case outcome == convcache.Consumed || outcome == convcache.Taken: // or a note is in its place
		p.move(n, elsewhere)
	default: // nobody has it
		p.move(n, lost)
	}
	return ticket, outcome
}

// GiveUp takes a ticket or a note that no turn may use out of the store, if it is still there. The ticket's blocks are released.
func (p *Pins) GiveUp(ctx context.Context, key convcache.Key, id convcache.TicketID, model string) convcache.Outcome {
	ticket, outcome := p.take(ctx, key, id, model)
	if outcome == convcache.Taken && !ticket.HandedBack() {
		p.Unuse(&ticket, nil)
	}
	return outcome
}

// giveUp lets a stored ticket wait for its release. why is the reason of its next turn's miss. The caller holds p.mu.
func (p *Pins) giveUp(n *pin, why string) {
	if len(p.gaveUp) >= maxGaveUp {
		clear(p.gaveUp)
	}
	p.gaveUp[n.Key] = why
	p.move(n, late)
}
