package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"carryover/convcache"
	"carryover/server/proof"
	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// The ends of a hand-back, as the log and the metrics have them.
const (
	handedBack       = "done"
	handBackFailed   = "failed" // the leg may have been seen by an engine; decode is to free the blocks once nothing reads them
	handBackRequeued = "kept"   // nothing of it was sent, or the engine refused it; it is tried again, or released
)

// run hands one ticket back. One that was sent is never sent again.
func (h *handBacks) run(ctx context.Context, k *retainedTicket) {
	began := time.Now()
	prefill, decode := k.queue.prefill, k.queue.decode
	link := prefill.PairWith(decode)
	if !prefill.Alive(ctx) || !decode.Alive(ctx) || !permits(link.Begin()) {
		k.again = true
		return
	}
	defer func() { // also by a panic
		if !k.concluded {
			link.End(fleet.Inconclusive)
		}
		if k.ticket != nil && !k.settled {
			h.unanswered(k)
		}
	}()
	if !h.has(ctx, k) {
		return
	}
	ticket := *k.ticket
	if h.lineages.inDoubt(ticket.Lineage) {
		h.release(k)
		return
	}
	if decode.Void(ticket.FreshAsOf) || untilFreed(ticket.Deadline) <= 0 {
		h.keepAgain(ctx, k)
		return
	}
	if h.releaser.outdated(&ticket) {
		h.release(k)
		return
	}
	outcome, err := h.send(ctx, k, link)
	h.count(outcome, ticket.Tokens)
	attrs := []any{
		"conversation", k.conversation, "model", k.model, "prefill", prefill.Engine().Name, "decode", decode.Engine().Name,
		"tokens", ticket.Tokens, "outcome", outcome, "took_ms", Milliseconds(time.Since(began)),
	}
	if err != nil {
		h.cfg.Logger.Warn("hand-back", append(attrs, "error", err)...)
		return
	}
	h.cfg.Logger.Info("hand-back", attrs...)
}

// permits reports whether a ticket may be offered on a link that stands so.
func permits(status fleet.PairStatus) bool {
	return status == fleet.Proven || status == fleet.Trial
}

// has takes the ticket out of the store, unless it is out of it already. One that a turn has used is not there.
func (h *handBacks) has(ctx context.Context, k *retainedTicket) bool {
	if k.ticket != nil {
		return true
	}
	bounded, cancel := storeContext(ctx, h.cfg)
	defer cancel()
	ticket, outcome := h.deps.Store.Take(bounded, k.key, k.id)
	h.ledger.gone(k.id, outcome)
	if outcome != convcache.Taken {
		return false
	}
	_, _ = h.releaser.read(&ticket) // the connector says what is wrong with one that can't be read
	k.ticket = &ticket
	k.queue.decode.BeginTransfer(inBlocks(k.queue.decode, ticket.Tokens))
	return true
}

// send sends the leg, and says what became of the ticket.
func (h *handBacks) send(ctx context.Context, k *retainedTicket, link *fleet.PairState) (outcome string, err error) {
	prefill, ticket := k.queue.prefill, k.ticket
	found, ok := h.lineages.enter(prefill, ticket.Lineage)
	if !ok {
		h.release(k)
		return handBackRequeued, errInDoubt
	}
	made, err := h.deps.Connector.HandBack(h.offer(k), k.model, found.Salt()+k.salt)
	if err != nil { // of an older or a foreign version
		h.release(k)
		return handBackRequeued, err
	}
	limit, cause := h.cfg.ReuseTrialTimeout+prefill.Expect(len(made.Body)), upstream.ErrReuseTimeout
	if left := untilFreed(ticket.Deadline); left < limit {
		limit, cause = left, upstream.ErrTicketEnded
	}
	limited, cancel := context.WithTimeoutCause(ctx, limit, cause)
	defer cancel()
	leg := upstream.Leg{Instance: prefill.Engine().Instance(), API: made.API, Body: rawjson.Pieces{made.Body}, RequestID: newID()}
	answer, err := h.deps.Legs.HandBack(limited, leg)
	if err == nil && prefill.Foreign(leg.RequestID, answer.ID) {
		h.deps.Legs.Close()
		err = &upstream.LegError{Role: upstream.RolePrefill, Instance: prefill.Engine().Name, Kind: upstream.Broken, Sent: true, Err: errForeign}
	}
	blame(prefill.Engine(), err, true)
	if err != nil {
		return h.failed(ctx, k, link, err), err
	}
	h.concluded(k, link, fleet.Answered)
	h.arrived(k, true)
	h.releaser.spent(*ticket)
	if !k.repeats(answer) {
		h.lineages.records.Bad(found)
		quarantine(h.cfg.Logger, prefill, "hand-back")
		h.counts.quarantines.Add(1)
		return handBackFailed, proof.ErrIDs
	}
	h.lineages.records.Good(found)
	h.note(ctx, k, h.lineages.leave(ticket.Lineage, found))
	return handedBack, nil
}

// offer is what the connector makes the leg of: all of the ticket, under exactly the ids that it covers.
func (h *handBacks) offer(k *retainedTicket) upstream.TicketOffer {
	ticket := k.ticket
	o := upstream.TicketOffer{
		Ticket: ticket.Params, Holder: k.queue.decode.Engine().Instance(), Tokens: ticket.Tokens, BlockSize: ticket.Chain.BlockSize,
		PromptIDs: k.ids.AppendList(nil),
	}
	if kept, ok := ticket.Reading.(*upstream.Kept); ok {
		o.Reading = kept.Reading
	}
	return o
}

// repeats reports whether prefill says that it computed the ids that it was sent, and counts as many.
func (k *retainedTicket) repeats(answer upstream.PrefillAnswer) bool {
	return (answer.PromptTokens == 0 || answer.PromptTokens == k.ids.Len()) && k.ids.Are(answer.PromptIDs)
}

// failed says what became of a ticket whose leg failed.
func (h *handBacks) failed(ctx context.Context, k *retainedTicket, link *fleet.PairState, err error) (outcome string) {
	var leg *upstream.LegError
	if !errors.As(err, &leg) {
		leg = &upstream.LegError{Sent: true}
	}
	switch {
	case !leg.Sent || leg.Kind == upstream.Status && leg.Status == http.StatusTooManyRequests:
		h.later(ctx, k)
		return handBackRequeued
	case leg.Kind == upstream.Status && leg.Status < http.StatusInternalServerError, leg.Paused(): // before it was scheduled
		h.release(k)
		return handBackRequeued
	}
	h.concluded(k, link, outcomeOf(leg))
	h.unanswered(k)
	return handBackFailed
}

// later has a ticket wait again of which no engine has read. One of a conversation goes back to the store, where turns find it.
func (h *handBacks) later(ctx context.Context, k *retainedTicket) {
	k.unsent++
	if !k.homed {
		if k.unsent >= maxUnsent {
			h.release(k)
			return
		}
		k.again, k.settled = true, true
		return
	}
	if h.keepAgain(ctx, k) {
		k.again, k.ticket = true, nil
	}
}

// unanswered gives up a ticket whose leg may have been seen by an engine, and has brought no answer.
func (h *handBacks) unanswered(k *retainedTicket) {
	k.settled = true
	h.releaser.unanswered(*k.ticket, k.model, k.queue.prefill)
	k.queue.decode.EndTransfer(inBlocks(k.queue.decode, k.ticket.Tokens), k.ticket.FreshAsOf, true)
}

// concluded tells the link what became of the ticket.
func (h *handBacks) concluded(k *retainedTicket, link *fleet.PairState, outcome fleet.Outcome) {
	k.concluded = true
	h.releaser.tell(link, outcome, k.ticket, k.queue.prefill, k.queue.decode, "hand-back")
}

// arrived ends the way of the ticket.
func (h *handBacks) arrived(k *retainedTicket, freed bool) {
	k.settled = true
	k.queue.decode.EndTransfer(inBlocks(k.queue.decode, k.ticket.Tokens), k.ticket.FreshAsOf, freed)
}

// keepAgain puts a ticket back of which nothing was sent, for what is left of its life, and reports whether it is in the store, or may
// be. One without a conversation is released.
func (h *handBacks) keepAgain(ctx context.Context, k *retainedTicket) bool {
	if !k.homed {
		h.release(k)
		return false
	}
	h.arrived(k, true) // it is counted with those in the store again
	outcome := h.put(ctx, k, *k.ticket)
	return outcome == convcache.Stored || outcome == convcache.Unavailable
}

// note puts a note into the ticket's place. Of KV that is in doubt by now there is none.
func (h *handBacks) note(ctx context.Context, k *retainedTicket, kv convcache.Lineage) {
	if k.homed && !h.lineages.inDoubt(kv) {
		note := k.ticket.Note(k.queue.prefill.Engine().Name, k.queue.prefill.ID(), time.Now())
		note.Lineage = kv
		h.put(ctx, k, note)
	}
}

// put stores a ticket or a note.
func (h *handBacks) put(ctx context.Context, k *retainedTicket, ticket convcache.Ticket) convcache.Outcome {
	bounded, cancel := storeContext(ctx, h.cfg)
	defer cancel()
	return h.writer.put(bounded, k.key, ticket, k.model)
}

// count counts a hand-back.
func (h *handBacks) count(outcome string, tokens int) {
	c := &h.counts.handBacks
	switch outcome {
	case handedBack:
		c.done.Add(1)
		c.tokens.Add(uint64(max(tokens, 0)))
	case handBackFailed:
		c.failed.Add(1)
	default:
		c.requeued.Add(1)
	}
}
