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
	pin   // a copy of the pin; it owns the ids until the hand-back ends
	began time.Time
	over  func()        // ends prefill's count of the hand-back
	ended chan struct{} // closed at the end
	count *uint64       // the counter of its outcome, nil before that is known
}

// begin begins the hand-backs that are due, one at a time for each pair. If prefill will never take a ticket, the ticket stays in the store until a
// turn uses it or it ends: another prefill can read it.
func (p *Pins) begin(at time.Time) (all []*underWay) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pass(at)
	for _, n := range slices.Clone(p.ready) {
		engine, decode, status := n.Prefill.Engine(), n.Decode, n.Prefill.StatusWith(n.Decode)
		switch {
		case slices.ContainsFunc(p.underWay, func(u *underWay) bool { return u.Prefill == n.Prefill && u.Decode == decode }):
		case n.epoch != p.deps.Epoch.Now():
			p.giveUp(n, record.ReasonQuarantined)
		case n.Prefill.Over(), engine.Quarantined(), n.Prefill.PrefixCache.Forgets() != "", status == pairs.NoReuse && n.Conversation == "":
			n.drop()
			p.move(n, stored)
		case engine.Last() != n.Prefill, decode.Engine().Last() != decode, status == pairs.NoReuse, status == pairs.Busy, !engine.TakesHandBack():
			// It waits: an engine that refused a connection usually answers again within seconds, and a stop or a trial of the pair ends.
		default:
			u := &underWay{pin: *n, began: time.Now(), over: engine.BeginHandBack(), ended: make(chan struct{})}
			n.ids, n.until = nil, time.Time{}
			p.move(n, late)
			n.enlist(nil) // the hand-back takes it
			p.underWay, all = append(p.underWay, u), append(all, u)
		}
	}
	return all
}

func (p *Pins) done(u *underWay) {
	u.over()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.underWay = slices.DeleteFunc(p.underWay, func(other *underWay) bool { return other == u })
	close(u.ended)
	u.ids.Free()
	if u.count != nil {
		*u.count++
	}
	ask(p.wake)
}

// again lets a ticket that no engine has read wait for another leg.
func (p *Pins) again(u *underWay) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.pins[u.id]; n != nil && n.state <= sent { // else decode has ended
		n.ids, n.until, u.ids = u.ids, p.now().Add(restsFor), nil
		if n.state == late {
			p.move(n, stored)
		}
	}
}

// handBack hands a ticket back: prefill reads the blocks into its own prefix cache, decode frees them, and a note replaces the ticket in the store.
// The next turn goes to that prefill engine, whose cache compares tokens by itself. A ticket that was sent is never sent again.
//
// The leg is a text completion of the ids. Its connection is dropped at the first event, which has the id echo. Decode's blocks are free 0.02 to 0.15
// s later, and prefill's own 0.05 to 0.5 s later (measured on vLLM 0.32).
func (p *Pins) handBack(ctx context.Context, u *underWay) {
	defer p.done(u)
	if !u.Prefill.Alive(ctx) || !u.Decode.Alive(ctx) || u.Decode.Engine().Health.Suspected() {
		p.again(u)
		return
	}
	claim, status, outcome := p.Take(ctx, u.Key, u.id, Claim{Holder: u.Decode, Reader: u.Prefill, PairState: u.Prefill.PairWith(u.Decode)}, u.Model, "hand-back")
	switch {
	case status == pairs.NoReuse, status == pairs.Busy:
		p.again(u)
		return
	case outcome != convcache.Taken: // a turn has used it
		return
	}
	defer claim.End(ctx, func(ctx context.Context, ticket convcache.Ticket) { // runs after a panic too
		p.again(u)
		p.Put(ctx, u.Key, ticket, u.Model)
	})
	ticket := *claim.Ticket
	if ticket.Epoch != p.deps.Epoch.Now() || p.Outdated(&ticket) || UntilFreed(ticket.Deadline) <= 0 {
		claim.GiveUp()
		return
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
		"conversation", u.Conversation, "model", u.Model, "prefill", u.Prefill.Engine().Name, "decode", u.Decode.Engine().Name,
		"tokens", ticket.Tokens, "outcome", ended, "took_ms", record.Milliseconds(time.Since(u.began)),
	}
	if err != nil {
		p.cfg.Logger.Warn("hand-back", append(attrs, "error", err)...)
	} else {
		p.cfg.Logger.Info("hand-back", attrs...)
	}
}

func (p *Pins) copyOver(ctx context.Context, c *Claim, u *underWay) error {
	ticket, prefill := c.Ticket, c.Reader.Engine()
	salt := upstream.Salted(p.deps.Epoch.Salt(ticket.Epoch, c.Reader, c.Holder), u.Salt)
	made, err := p.deps.Connector.HandBack(c.Offered(ticket.Tokens, u.ids.AppendList(nil)), u.Model, salt) // exactly the ticket's ids
	if err != nil {                                                                                        // an older or a foreign version has made the ticket
		c.GiveUp()
		return err
	}
	limit, cause := p.cfg.TrialTimeout+prefill.Expects(ticket.Tokens), upstream.ErrReuseTimeout
	if left := UntilFreed(ticket.Deadline); left < limit {
		limit, cause = left, upstream.ErrTicketEnded
	}
	c.Sent()
	answer, failed := p.send(ctx, c.Reader, made, limit, cause)
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
	if ticket.Epoch == p.deps.Epoch.Now() && u.Conversation != "" {
		p.Put(ctx, u.Key, ticket.Note(HolderOf(c.Reader), p.now()), u.Model)
	}
	return nil
}
