package pins

import (
	"context"
	"net/http"
	"time"

	"carryover/convcache"
	"carryover/server/continuation"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/server/storetime"
	"carryover/upstream"
	"carryover/upstream/fleet/pairs"
)

// handBack hands the ticket of a pin back: prefill reads the blocks into its own prefix cache, decode frees them, and a note takes the ticket's
// place in the store. The next turn goes to that prefill engine, which compares tokens by itself. was is what the pin was when it was chosen: in
// the store, if it had no ticket. It reports whether the ticket waits for another leg. A ticket that was sent is never sent again.
//
// The leg is a text completion of the ids, whose connection is dropped at the first event, which has the id echo. Decode is free 0.02 to 0.15 s
// later, prefill's own blocks 0.05 to 0.5 s later (measured on vLLM 0.32).
func (p *Pins) handBack(ctx context.Context, of pair, n, was *pin) (again bool) {
	defer func() {
		if !again {
			was.back.ids.Free()
		}
	}()
	ticket := was.ticket
	began, state := p.now(), of.prefill.PairWith(of.decode)
	if !of.prefill.Alive(ctx) || !of.decode.Alive(ctx) || of.decode.Engine().Health.Suspected() {
		return p.again(n, was, was.ticket)
	}
	if status := state.Begin(""); status != pairs.Proven && status != pairs.Trial {
		return p.again(n, was, was.ticket)
	}
	claim := Claim{Holder: of.decode, Reader: of.prefill, PairState: state}
	defer func() { // runs after a panic too
		if claim.pins == nil {
			state.End(pairs.Inconclusive, "")
		}
		claim.End(ctx, func(ctx context.Context, ticket convcache.Ticket) { again = p.putBack(ctx, n, was, &ticket) })
	}()
	if ticket == nil {
		bounded, cancel := storetime.Limit(ctx, p.cfg.StoreTimeout)
		defer cancel()
		taken, outcome := p.take(bounded, was.key, was.id)
		if outcome != convcache.Taken {
			return false // a turn has used it
		}
		ticket = &taken
	}
	claim = p.hold(ticket, claim, was.model, "hand-back")
	switch {
	case ticket.Epoch != p.deps.Epoch.Now(), p.Outdated(ticket):
		claim.GiveUp()
		return false
	case UntilFreed(ticket.Deadline) <= 0:
		return false
	}
	tokens := ticket.Tokens
	outcome, err := p.copyOver(ctx, &claim, was)
	attrs := []any{
		"conversation", was.shown, "model", was.model, "prefill", of.prefill.Engine().Name, "decode", of.decode.Engine().Name,
		"tokens", tokens, "outcome", outcome, "took_ms", record.Milliseconds(time.Since(began)),
	}
	if err != nil {
		p.cfg.Logger.Warn("hand-back", append(attrs, "error", err)...)
	} else {
		p.cfg.Logger.Info("hand-back", attrs...)
	}
	return false
}

// The outcomes of a hand-back in the log and the metrics.
const (
	handedBack       = "done"
	handBackFailed   = "failed"   // an engine may have seen the leg; the blocks are released once nothing can be reading them
	handBackRequeued = "requeued" // nothing was sent, or the engine refused the leg; the ticket is tried again, or released
)

// copyOver has prefill read the blocks of a claim into its cache, and returns the outcome.
func (p *Pins) copyOver(ctx context.Context, c *Claim, was *pin) (outcome string, err error) {
	ticket, back := c.Ticket, was.back
	made, err := p.deps.Connector.HandBack(upstream.TicketOffer{ // all of it, with exactly the ids that it covers
		Ticket: ticket.Params, Reading: Reading(ticket), Holder: c.Holder.Engine().Instance(), Tokens: ticket.Tokens, BlockSize: ticket.Chain.BlockSize,
		PromptIDs: back.ids.AppendList(nil),
	}, was.model, upstream.Salted(p.deps.Epoch.Salt(ticket.Epoch, c.Reader, c.Holder), back.salt))
	if err != nil { // an older or a foreign version has made the ticket
		c.GiveUp()
		return p.ended(&p.counts.HandBacks.Requeued, handBackRequeued), err
	}
	limit, cause := p.cfg.TrialTimeout+c.Reader.Engine().Expects(ticket.Tokens), upstream.ErrReuseTimeout
	if left := UntilFreed(ticket.Deadline); left < limit {
		limit, cause = left, upstream.ErrTicketEnded
	}
	c.Sent()
	answer, err := p.send(ctx, c.Reader.Engine(), made, limit, cause)
	if err != nil {
		leg := legError(err)
		refused := leg.Kind == upstream.Status && leg.Status < http.StatusInternalServerError
		c.Failed(leg)
		switch {
		case !leg.Sent, refused && leg.Status == http.StatusTooManyRequests:
			c.sent = false // no engine has read it
		case refused: // before it was scheduled
			c.paused = true
		case !c.paused:
			return p.ended(&p.counts.HandBacks.Failed, handBackFailed), err
		}
		return p.ended(&p.counts.HandBacks.Requeued, handBackRequeued), err
	}
	c.Conclude(pairs.Answered)
	if answer.PromptTokens != 0 && answer.PromptTokens != back.ids.Len() || !back.ids.Are(answer.PromptIDs) {
		p.deps.Epoch.Caught(c.Reader, ticket.Epoch, "hand-back")
		return p.ended(&p.counts.HandBacks.Failed, handBackFailed), proof.ErrIDs
	}
	if was.homed() && ticket.Epoch == p.deps.Epoch.Now() {
		bounded, cancel := storetime.Limit(ctx, p.cfg.StoreTimeout)
		defer cancel()
		note := ticket.Note(convcache.Holder{Instance: c.Reader.Engine().Name, Incarnation: c.Reader.ID()}, p.now())
		note.Account = was.account
		p.Put(bounded, was.key, note, was.model)
	}
	return p.ended(&p.counts.HandBacks.Done, handedBack), nil
}

// ended counts a hand-back.
func (p *Pins) ended(count *uint64, outcome string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	*count++
	return outcome
}

// again has a pin wait for another hand-back, and reports whether it does. ticket is nil if it is in the store.
func (p *Pins) again(n, was *pin, ticket *convcache.Ticket) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n.state > sent { // it has ended meanwhile
		return false
	}
	n.back, n.retreat = was.back, p.now()
	if ticket != nil {
		return p.due(n, ticket, continuation.HandBack)
	}
	if n.state == stored {
		p.move(n, stored)
	}
	return true
}

// putBack has a ticket that no engine has read wait again: one of a conversation in the store, where turns find it. It reports whether the
// ticket waits for another hand-back.
func (p *Pins) putBack(ctx context.Context, n, was *pin, ticket *convcache.Ticket) bool {
	if !was.homed() {
		if n.unsent++; n.unsent < maxUnsent && UntilFreed(ticket.Deadline) > 0 { // only its legs count them
			return p.again(n, was, ticket)
		}
		p.Unuse(*ticket, was.model)
		return false
	}
	bounded, cancel := storetime.Limit(ctx, p.cfg.StoreTimeout)
	defer cancel()
	ticket.Account = was.account
	p.Put(bounded, was.key, *ticket, was.model)
	return p.again(n, was, nil)
}
