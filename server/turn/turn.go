package turn

import (
	"context"
	"log/slog"
	"time"

	"carryover/server/admission"
	"carryover/server/pick"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/server/reuse"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// turn is one client request and its answer. Only the turn's own goroutine uses it.
type turn struct {
	request.Request
	began    time.Time
	routing  *RoutingConfig // as it was when the turn began
	legID    string         // X-Request-Id of the legs; a retry gets a new one
	admitted reuse.Admitted
	proof    reuse.Proof // of the last attempt
	found    reuse.Found // what the store has of the conversation

	// What the attempts so far mean for the next one.
	asked   pick.Attempt                  // what engines are picked for, with the request's body; empty once the answer has begun
	failed  failure                       // how the last one has failed
	retried int                           // how many have failed and were tried again
	tried   [upstream.RoleDecode + 1]bool // by role: a leg was sent, failed, and was tried again
	without string                        // why it must use no ticket, "" if it may
	doubts  doubts                        // failures that the request may be at fault for

	share  request.Reservation // the turn's part of the bytes in flight
	lease  admission.Lease     // the turn's slot of the server
	out    commitWriter
	record record.Builder
}

// dropBody frees the request's body and its ids, and gives back the turn's reserved bytes except those that the end of the stream needs: hashes and
// numbers. It is called when decode answers and no attempt can follow, so that a stream of minutes does not hold its prompt.
//
// What a turn holds in memory:
//
//   - The body, its ids and their share of the bytes in flight, until the client sees the first byte. Legs are made of pieces of the body, so the
//     body stays unchanged until then.
//   - Parts of the answer: a whole one, or a long event. They count among the bytes in flight while they are held. What is too long, or finds no
//     room, passes as it comes. Nobody reads it, so it leaves no ticket, and null replaces what clients must not see of it (rawjson.Blanks).
//   - The answer to the question for a prompt's ids, in memory that the fleet lends. This memory serves the next prompt once both legs are written.
//     If a leg may still be on its way, it is left to the garbage collector.
//   - A relay's buffer. The next stream gets it when the relay's own stream has ended.
//
// All that is kept for others is bounded.
func (t *turn) dropBody() {
	t.asked = pick.Attempt{}
	t.share.ShrinkTo(t.admitted.Drop(&t.found))
}

// run makes attempts until the turn has ended. It returns nil if the client has its answer. Otherwise it returns why there is none, or why the
// answer broke off.
func (h *Handler) run(ctx context.Context, t *turn) error {
	h.Retries.Earn(t.Account, budgetPerTurn)
	defer t.doubts.end()
	for {
		err := h.try(ctx, t)
		if err == nil || t.out.committed || h.isHopeless(t, err) || !h.mayTryAgain(ctx, t, err) {
			return err
		}
		t.legID = upstream.NewID()
		t.record.Retried()
		t.retried++
		h.log(&t.record).Info("trying again", "error", err)
	}
}

func (h *Handler) log(of *record.Builder) *slog.Logger { return h.cfg.Logger.With("turn", of.ID()) }

// try makes one attempt: look the conversation up, pick engines, claim a ticket, run the legs until decode's headers have arrived, and relay the
// answer. Only the last of these functions runs while a stream is open, so the frames of the others are not on its stack.
func (h *Handler) try(ctx context.Context, t *turn) error {
	began, queued := time.Now(), t.asked.Queued
	pair, err := h.pick(ctx, t)
	if err != nil {
		return err
	}
	defer pair.Done()
	a := h.find(ctx, t, pair)
	t.record.Looked(time.Since(began) - (t.asked.Queued - queued))
	answer, err := a.run(ctx)
	t.failed, t.failed.why = a.failed, a.claim.Why
	if err != nil {
		return err
	}
	t.doubts.settle(upstream.RoleDecode, false)
	t.doubts.end() // an engine has served what others failed
	h.accepted(t, pair.Decode)
	return h.respond(ctx, t, answer)
}

// pick looks up which tickets the conversation has, and picks the attempt's engines and path.
func (h *Handler) pick(ctx context.Context, t *turn) (pair *pick.Pair, err error) {
	t.failed = failure{}
	t.found = h.deps.Tickets.Look(ctx, &t.admitted, t.asked.Body, t.found, t.without != "")
	if t.retried == 0 { // else the record keeps what the last attempt has reused, until this one decides
		t.record.Reuses(t.admitted.Nothing(&t.found))
	}
	t.asked.Hint, t.asked.Owned = t.found.Hint(&t.admitted)
	t.asked.Chain = h.deps.Picker.PromptChain(t.asked.Body)
	pair, t.asked.Earlier, err = h.deps.Picker.Pick(ctx, t.asked)
	t.record.Waited(t.asked.Queued)
	return pair, err
}

// find makes the pair's attempt. It proves how much of a ticket may be used, and claims it; a miss is a claim without a ticket.
func (h *Handler) find(ctx context.Context, t *turn, pair *pick.Pair) *attempt {
	t.proof = t.admitted.Prove(ctx, pair.Prefill, pair.Decode, pair.Quarantined, t.record.ID())
	a := &attempt{
		h: h, Attempt: t.asked, record: &t.record, legID: t.legID, pair: pair, proof: &t.proof, found: &t.found, doubts: &t.doubts,
	}
	a.claim, t.found = h.deps.Tickets.Find(ctx, &t.proof, t.found, t.without)
	return a
}

// accepted makes the turn's tenant an account of its own from the next turn on: decode has accepted its credential.
func (h *Handler) accepted(t *turn, decode *fleet.Incarnation) {
	account, tenant, deps := t.Account, t.Conversation.Tenant, &h.deps
	if t.Authorization == "" || deps.Accepted.Has(tenant) {
		return
	}
	deps.Background.Run("account", t.record.ID(), func() {
		if decode.Keys.Checked(deps.Background.Context()) {
			deps.Accepted.Add(account, tenant)
		}
	})
}
