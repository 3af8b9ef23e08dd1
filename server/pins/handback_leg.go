package pins

import (
	"context"
	"errors"
	"net/http"
	"time"

	"carryover/convcache"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/server/storetime"
	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/fleet/pairs"
)

// The outcomes of a hand-back in the log and the metrics.
const (
	handedBack       = "done"
	handBackFailed   = "failed"   // an engine may have seen the leg; the blocks are released once nothing can be reading them
	handBackRequeued = "requeued" // nothing was sent, or the engine refused the leg; the ticket is tried again, or released
)

// run hands one ticket back. A ticket that was sent is never sent again.
func (h *HandBacks) run(ctx context.Context, k *retainedTicket) {
	began := time.Now()
	prefill, decode := k.queue.prefill, k.queue.decode
	pairState := prefill.PairWith(decode)
	if !prefill.Alive(ctx) || !decode.Alive(ctx) || decode.Engine().Health.Suspected() || !permits(pairState.Begin("")) {
		k.leg.again = true
		return
	}
	defer func() { // runs after a panic too
		if !k.leg.concluded {
			pairState.End(pairs.Inconclusive, "")
		}
		if k.ticket != nil && !k.leg.settled {
			h.unanswered(k)
		}
	}()
	if !h.has(ctx, k) {
		return
	}
	ticket := *k.ticket
	if ticket.Epoch != h.deps.Epoch.Now() {
		k.releaseBy(h.releases)
		return
	}
	if UntilFreed(ticket.Deadline) <= 0 {
		h.keepAgain(ctx, k)
		return
	}
	if h.releases.Outdated(&ticket) {
		k.releaseBy(h.releases)
		return
	}
	outcome, err := h.send(ctx, k, pairState)
	h.counts.ended(outcome)
	attrs := []any{
		"conversation", k.from.conversation, "model", k.from.model, "prefill", prefill.Engine().Name, "decode", decode.Engine().Name,
		"tokens", ticket.Tokens, "outcome", outcome, "took_ms", record.Milliseconds(time.Since(began)),
	}
	if err != nil {
		h.cfg.Logger.Warn("hand-back", append(attrs, "error", err)...)
		return
	}
	h.cfg.Logger.Info("hand-back", attrs...)
}

// permits reports whether a pair with this status may be sent a ticket.
func permits(status pairs.Status) bool {
	return status == pairs.Proven || status == pairs.Trial
}

// has takes the ticket out of the store, unless that was done before. It reports false if a turn has used the ticket.
func (h *HandBacks) has(ctx context.Context, k *retainedTicket) bool {
	if k.ticket != nil {
		return true
	}
	bounded, cancel := storetime.Limit(ctx, h.cfg.StoreTimeout)
	defer cancel()
	ticket, outcome := h.releases.take(bounded, k.key, k.id)
	k.was = h.ledger.gone(k.id, outcome)
	if outcome != convcache.Taken {
		return false
	}
	_, _ = h.releases.read(&ticket) // a ticket that can't be read fails in Connector.HandBack, with the reason
	k.ticket = &ticket
	k.queue.decode.Pins.BeginTransfer(inBlocks(k.queue.decode, ticket.Tokens))
	return true
}

// send sends the leg, and returns the outcome.
func (h *HandBacks) send(ctx context.Context, k *retainedTicket, pairState *pairs.State) (outcome string, err error) {
	prefill, ticket := k.queue.prefill, k.ticket
	salt := upstream.Salted(h.deps.Epoch.Salt(ticket.Epoch, prefill, k.queue.decode), k.from.salt)
	made, err := h.deps.Connector.HandBack(h.offer(k), k.from.model, salt)
	if err != nil { // an older or a foreign version has made the ticket
		k.releaseBy(h.releases)
		return handBackRequeued, err
	}
	limit, cause := h.cfg.TrialTimeout+prefill.Engine().Expects(ticket.Tokens), upstream.ErrReuseTimeout
	if left := UntilFreed(ticket.Deadline); left < limit {
		limit, cause = left, upstream.ErrTicketEnded
	}
	limited, cancel := context.WithTimeoutCause(ctx, limit, cause)
	defer cancel()
	leg := upstream.Leg{Instance: prefill.Engine().Instance(), API: made.API, Body: rawjson.Pieces{made.Body}, RequestID: upstream.NewID()}
	h.releases.become(ticket, HandingBack)
	answer, err := h.deps.Legs.HandBack(limited, leg)
	if err == nil && prefill.Engine().AnswerIDs.Foreign(leg.RequestID, answer.ID) {
		h.deps.Legs.Close()
		err = &upstream.LegError{Role: upstream.RolePrefill, Instance: prefill.Engine().Name, Kind: upstream.Broken, Sent: true, Err: upstream.ErrForeign}
	}
	h.deps.Blame(prefill.Engine(), err)
	if err != nil {
		return h.failed(ctx, k, pairState, err), err
	}
	h.concluded(k, pairState, pairs.Answered)
	k.arrived()
	h.releases.spent(*ticket)
	if !k.repeats(answer) {
		h.deps.Epoch.Caught(prefill, ticket.Epoch, "hand-back")
		return handBackFailed, proof.ErrIDs
	}
	h.note(ctx, k)
	return handedBack, nil
}

// offer returns the offer from which the connector makes the leg: all of the ticket, with exactly the ids that it covers.
func (h *HandBacks) offer(k *retainedTicket) upstream.TicketOffer {
	ticket := k.ticket
	o := upstream.TicketOffer{
		Ticket: ticket.Params, Holder: k.queue.decode.Engine().Instance(), Tokens: ticket.Tokens, BlockSize: ticket.Chain.BlockSize,
		PromptIDs: k.ids.AppendList(nil),
	}
	if parsed, ok := ticket.Reading.(*upstream.TicketParams); ok {
		o.Reading = parsed.Reading
	}
	return o
}

// repeats reports whether prefill's answer repeats the ids that it was sent, and counts as many.
func (k *retainedTicket) repeats(answer upstream.PrefillAnswer) bool {
	return (answer.PromptTokens == 0 || answer.PromptTokens == k.ids.Len()) && k.ids.Are(answer.PromptIDs)
}

// failed settles a ticket whose leg failed, and returns the outcome.
func (h *HandBacks) failed(ctx context.Context, k *retainedTicket, pairState *pairs.State, err error) (outcome string) {
	var leg *upstream.LegError
	if !errors.As(err, &leg) {
		leg = &upstream.LegError{Sent: true}
	}
	switch {
	case !leg.Sent || leg.Kind == upstream.Status && leg.Status == http.StatusTooManyRequests:
		h.later(ctx, k)
		return handBackRequeued
	case leg.Kind == upstream.Status && leg.Status < http.StatusInternalServerError, leg.Paused(): // before it was scheduled
		k.releaseBy(h.releases)
		return handBackRequeued
	}
	h.concluded(k, pairState, OutcomeOf(leg))
	h.unanswered(k)
	return handBackFailed
}

// later queues a ticket again that no engine has read. If it has a conversation, it also goes back to the store, where turns find it.
func (h *HandBacks) later(ctx context.Context, k *retainedTicket) {
	k.unsent++
	if !k.homed {
		if k.unsent >= maxUnsent {
			k.releaseBy(h.releases)
			return
		}
		h.releases.become(k.ticket, HandBackQueued)
		k.leg.again, k.leg.settled = true, true
		return
	}
	if h.keepAgain(ctx, k) {
		k.leg.again, k.ticket = true, nil
	}
}

// unanswered gives up a ticket whose leg an engine may have seen but has not answered.
func (h *HandBacks) unanswered(k *retainedTicket) {
	k.arrived()
	h.releases.give(*k.ticket, k.from.model, k.queue.prefill)
}

// concluded tells the pair's state the outcome of the ticket.
func (h *HandBacks) concluded(k *retainedTicket, pairState *pairs.State, outcome pairs.Outcome) {
	k.leg.concluded = true
	h.releases.tell(&Claim{Ticket: k.ticket, Holder: k.queue.decode, Reader: k.queue.prefill, PairState: pairState, turn: "hand-back"}, outcome)
}

// keepAgain puts an unsent ticket back into the store for the rest of its life, and reports whether it is, or may be, in the store. A ticket
// without a conversation is released instead.
func (h *HandBacks) keepAgain(ctx context.Context, k *retainedTicket) bool {
	if !k.homed {
		k.releaseBy(h.releases)
		return false
	}
	k.arrived() // the ledger counts it again
	outcome := h.store(ctx, k, k.key, *k.ticket)
	h.ledger.resume(&k.was)
	return outcome == convcache.Stored || outcome == convcache.Unavailable
}

// note stores a note in place of the ticket, unless its epoch has ended.
func (h *HandBacks) note(ctx context.Context, k *retainedTicket) {
	if k.homed && k.ticket.Epoch == h.deps.Epoch.Now() {
		note := k.ticket.Note(convcache.Holder{Instance: k.queue.prefill.Engine().Name, Incarnation: k.queue.prefill.ID()}, time.Now())
		h.store(ctx, k, k.key, note)
	}
}

// store stores a ticket or a note.
func (h *HandBacks) store(ctx context.Context, k *retainedTicket, key convcache.Key, ticket convcache.Ticket) convcache.Outcome {
	bounded, cancel := storetime.Limit(ctx, h.cfg.StoreTimeout)
	defer cancel()
	ticket.Account = k.from.account
	return h.put(bounded, key, ticket, k.from.model)
}
