package pins

import (
	"context"
	"net/http"
	"slices"
	"time"

	"carryover/convcache"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/fleet/pairs"
)

type underWay struct {
	pin                 // a copy of the pin; it owns the ids until the hand-back ends
	ended chan struct{} // closed at the end
	count *uint64       // the counter of its outcome, nil before that is known
}

// next begins the hand-back of a queue's first pin. It returns nil if turns have taken all tickets.
func (p *Pins) next(q *queue) *underWay {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(q.ready) == 0 {
		return nil
	}
	n := q.ready[0]
	u := &underWay{pin: *n, ended: make(chan struct{})}
	n.ids, n.retreat = nil, time.Time{}
	p.move(n, stored)
	p.underWay = append(p.underWay, u)
	return u
}

func (p *Pins) done(u *underWay) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.underWay = slices.DeleteFunc(p.underWay, func(other *underWay) bool { return other == u })
	if close(u.ended); u.ids != nil {
		u.ids.Free()
	}
	if u.count != nil {
		*u.count++
	}
}

// handBack hands a queue's first ticket back: prefill reads the blocks into its own prefix cache, decode frees them, and a note replaces the ticket
// in the store. The next turn goes to that prefill engine, whose cache compares tokens by itself. again says that the ticket has to wait for another
// leg. A ticket that was sent is never sent again.
//
// The leg is a text completion of the ids. Its connection is dropped at the first event, which has the id echo. Decode's blocks are free 0.02 to 0.15
// s later, and prefill's own 0.05 to 0.5 s later (measured on vLLM 0.32).
func (p *Pins) handBack(ctx context.Context, q *queue) (again bool) {
	defer func() {
		q.over()
		p.mu.Lock()
		defer p.mu.Unlock()
		if q.busy = false; again {
			q.rests = p.now().Add(restsFor)
		}
		ask(p.wake)
	}()
	began := p.now()
	if !q.prefill.Alive(ctx) || !q.decode.Alive(ctx) || q.decode.Engine().Health.Suspected() {
		return true
	}
	u := p.next(q)
	if u == nil {
		return false
	}
	defer p.done(u)
	ticket, outcome := p.take(ctx, u.Key, u.id, u.Model)
	if outcome != convcache.Taken {
		return false // a turn has used it
	}
	claim := Claim{Ticket: &ticket, Holder: q.decode, Reader: q.prefill, pins: p, turn: "hand-back"}
	defer claim.End(ctx, func(ctx context.Context, ticket convcache.Ticket) { // runs after a panic too
		again = true
		p.putBack(ctx, u, &ticket)
	})
	state := q.prefill.PairWith(q.decode)
	if status := state.Begin(""); status != pairs.Proven && status != pairs.Trial {
		return true
	}
	claim.PairState = state
	if ticket.Epoch != p.deps.Epoch.Now() || p.Outdated(&ticket) || UntilFreed(ticket.Deadline) <= 0 {
		claim.GiveUp()
		return false
	}
	err := p.copyOver(ctx, &claim, u)
	// Requeued: nothing was sent, or the engine refused the leg. The ticket is tried again, or released.
	ended, counts := "requeued", &p.counts.HandBacks
	u.count = &counts.Requeued
	switch {
	case err == nil:
		ended, u.count = "done", &counts.Done
	case claim.progress == unanswered || claim.progress == answered: // the blocks are released once nothing can be reading them
		ended, u.count = "failed", &counts.Failed
	}
	attrs := []any{
		"conversation", u.Conversation, "model", u.Model, "prefill", q.prefill.Engine().Name, "decode", q.decode.Engine().Name,
		"tokens", ticket.Tokens, "outcome", ended, "took_ms", record.Milliseconds(time.Since(began)),
	}
	if err != nil {
		p.cfg.Logger.Warn("hand-back", append(attrs, "error", err)...)
	} else {
		p.cfg.Logger.Info("hand-back", attrs...)
	}
	return false
}

func (p *Pins) copyOver(ctx context.Context, c *Claim, u *underWay) error {
	ticket, prefill := c.Ticket, c.Reader.Engine()
	made, err := p.deps.Connector.HandBack(upstream.TicketOffer{ // the whole ticket, with exactly its ids
		Ticket: ticket.Params, Reading: Reading(ticket), Holder: c.Holder.Engine().Instance(), Tokens: ticket.Tokens, BlockSize: ticket.Chain.BlockSize,
		PromptIDs: u.ids.AppendList(nil),
	}, u.Model, upstream.Salted(p.deps.Epoch.Salt(ticket.Epoch, c.Reader, c.Holder), u.Salt))
	if err != nil { // an older or a foreign version has made the ticket
		c.GiveUp()
		return err
	}
	limit, cause := p.cfg.TrialTimeout+prefill.Expects(ticket.Tokens), upstream.ErrReuseTimeout
	if left := UntilFreed(ticket.Deadline); left < limit {
		limit, cause = left, upstream.ErrTicketEnded
	}
	c.Sent()
	answer, failed := p.send(ctx, prefill, made, limit, cause)
	if failed != nil {
		c.Doubted(failed)(false)
		if failed.Kind == upstream.Status && failed.Status < http.StatusInternalServerError { // before it was scheduled
			if c.progress = refused; failed.Status == http.StatusTooManyRequests {
				c.progress = unsent // no engine has read it
			}
		}
		return failed
	}
	c.Conclude(pairs.Answered)
	if answer.PromptTokens != 0 && answer.PromptTokens != u.ids.Len() || !u.ids.Are(answer.PromptIDs) {
		p.deps.Epoch.Caught(c.Reader, ticket.Epoch, "hand-back")
		return proof.ErrIDs
	}
	if ticket.Epoch == p.deps.Epoch.Now() {
		p.store(ctx, u, ticket.Note(convcache.Holder{Instance: prefill.Name, Incarnation: c.Reader.ID()}, p.now()))
	}
	return nil
}

func (p *Pins) store(ctx context.Context, u *underWay, ticket convcache.Ticket) {
	ticket.Account = u.Account
	p.Put(ctx, u.Key, ticket, u.Model)
}

// putBack stores a ticket that no engine has read, for another leg or a turn.
func (p *Pins) putBack(ctx context.Context, u *underWay, ticket *convcache.Ticket) {
	p.mu.Lock()
	if n := p.pins[u.id]; n != nil && n.state <= sent { // else decode has ended
		n.ids, n.retreat, u.ids = u.ids, p.now(), nil
	}
	p.mu.Unlock()
	p.store(ctx, u, *ticket)
}
