package turn

import (
	"context"
	"time"

	"carryover/server/admission"
	"carryover/server/pick"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/server/reuse"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// turn is one client request and its answer. Only the turn's own goroutine uses it.
type turn struct {
	request.Request
	body     *body.Request // nil once the answer has begun
	began    time.Time
	routing  *RoutingConfig // as it was when the turn began
	legID    string         // X-Request-Id of the legs; a retry gets a new one
	admitted reuse.Admitted
	proof    reuse.Proof // of the last attempt
	found    reuse.Found // what the store has of the conversation
	chain    []uint64    // hashes of the prompt's beginning, for the choice of prefill
	retries  retries
	failed   failure             // what the last attempt leaves to the next one
	doubts   doubts              // failures that the request may be at fault for
	share    request.Reservation // the turn's part of the bytes in flight
	lease    admission.Lease     // the turn's slot of the server
	out      *commitWriter       // writes the answer, nil until the legs begin
	record   record.Builder
}

// committed reports whether the answer's beginning has reached the client, so that the turn can't be tried again.
func (t *turn) committed() bool { return t.out != nil && t.out.committed }

// dropBody frees the request's body and its ids, and gives back the turn's reserved bytes except those that the end of the stream needs. It
// is called when decode answers and no attempt can follow, so that a stream of minutes does not hold its prompt.
//
// A turn holds its body, its ids and their share of the bytes in flight until the client sees the first byte; the end of a stream needs
// hashes and numbers only. Its answer counts among these bytes while it is held: one that comes whole, or a long event. What is too long, or
// finds no room, passes as it comes: nobody reads it, so that it leaves no ticket, and what clients must not see of it is null
// (rawjson.Blanks). Legs are made of pieces of the body, so the body stays unchanged until then. The answer to the question for a
// prompt's ids goes into memory that the fleet lends; it serves the next prompt once both legs are written, and is left to the garbage
// collector where a leg may still be on its way. A relay's buffer goes to the next stream when its own has ended. All that is kept for
// others is bounded.
func (t *turn) dropBody() {
	t.body, t.chain = nil, nil
	t.share.ShrinkTo(t.admitted.Drop(&t.found))
}

// run runs a turn to its end, with as many attempts as it takes. It returns nil when the client has its answer, an *AbortError when the
// answer broke off and the connection must be aborted, and any other error when the client has been sent nothing.
func (h *Handler) run(ctx context.Context, t *turn) error {
	h.budget.earn(t.Account)
	defer t.doubts.settle()
	for {
		pair, answer, err := h.ask(ctx, t)
		if err == nil {
			err = h.respond(ctx, t, pair, answer) // commit, relay, store the ticket, end
		}
		switch {
		case err == nil:
			return nil
		case t.committed():
			return &record.AbortError{Err: err}
		case h.isHopeless(t, err, false):
			return err
		case !h.again(ctx, t, err):
			h.isHopeless(t, err, true)
			return err
		}
	}
}

// again reports whether another attempt follows one that failed with err, and begins it.
func (h *Handler) again(ctx context.Context, t *turn, err error) bool {
	if !t.retries.again(ctx, &t.failed, err) {
		return false
	}
	t.legID = upstream.NewID()
	t.record.Retried()
	t.retries.made++
	h.cfg.Logger.Info("trying again", "turn", t.record.ID(), "error", err)
	return true
}

// ask is the first half of an attempt: look the conversation up, pick engines, find and claim a ticket, run the legs until decode's headers
// have arrived.
func (h *Handler) ask(ctx context.Context, t *turn) (_ *pick.Pair, answer *decoding, _ error) {
	tickets, lookup := h.deps.Tickets, t.record.Step(record.StepLookup)
	t.failed = failure{}
	t.found = tickets.Look(ctx, &t.admitted, t.body, t.found, t.retries.without.Why != "") // which tickets the conversation has, and on which engines
	t.record.Follows(t.admitted.Nothing(&t.found))
	if t.chain == nil {
		t.chain = h.deps.Picker.PromptChain(t.body)
	}
	hint, owned := t.found.Hint(&t.admitted)
	hint.Chain = t.chain
	asked := pick.Attempt{
		Request: &t.Request, Body: t.body, Hint: hint, Owned: owned, Tickets: t.admitted.TakesPart(), Record: &t.record, Earlier: t.retries.earlier,
		Threshold: t.routing.DisaggThreshold, PrefillError: t.routing.PrefillFailure == PrefillError,
	}
	pair, earlier, err := h.deps.Picker.Pick(ctx, asked) // which incarnations of which engines serve, and by which path
	t.retries.earlier, asked.Earlier = earlier, earlier
	if err != nil {
		lookup.Ended(false)
		return nil, nil, err
	}
	defer func() {
		if answer == nil { // the attempt has failed, or panics
			pair.Done()
		}
	}()

	a := &attempt{
		h: h, Attempt: asked, legID: t.legID, pair: pair, proof: &t.proof, found: &t.found, doubts: &t.doubts, failed: &t.failed,
		releases: h.cfg.Release && t.retries.without.Why == "",
	}
	t.proof = t.admitted.Prove(ctx, pair.Prefill, pair.Decode, pair.Quarantined, t.record.ID())
	a.claim, t.found = tickets.Find(ctx, &t.proof, t.found, t.retries.without) // the ticket to use; a miss is a claim without one
	a.reuses(reuse.Told{Cached: -1})
	lookup.Ended(true)
	if answer, err = a.run(ctx); err != nil { // prefill and decode in the connector's order; every exit settles the claim
		return nil, nil, err
	}
	t.doubts.without(upstream.RoleDecode)
	t.doubts.settle() // an engine has served what others have failed
	h.accepted(t, pair.Decode)
	return pair, answer, nil
}

// accepted has the tenant of a turn, whose credential decode has accepted, count for itself from its next turn on.
func (h *Handler) accepted(t *turn, decode *fleet.Incarnation) {
	if t.Authorization == "" || h.deps.Accepted.Has(t.Conversation.Tenant) {
		return
	}
	account, tenant := t.Account, t.Conversation.Tenant
	h.deps.Background.Run("account", t.record.ID(), func() {
		if decode.Keys.Checked(h.deps.Background.Context()) {
			h.deps.Accepted.Add(account, tenant)
		}
	})
}
