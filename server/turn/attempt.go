package turn

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"carryover/server/pick"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/server/reuse"
	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// attempt is one try of a turn: what its legs need, and what came of them.
type attempt struct {
	h            *Handler
	pick.Attempt // what its engines were picked for
	record       *record.Builder
	legID        string // X-Request-Id of the legs
	pair         *pick.Pair
	proof        *reuse.Proof
	found        *reuse.Found
	claim        reuse.Claim
	epoch        int64 // the fleet's, before the legs are planned
	doubts       *doubts
	failed       failure
}

// reuses records what the attempt reuses, as far as prefill has told.
func (a *attempt) reuses(told reuse.Told) reuse.Outcome {
	o := reuse.OutcomeOf(a.proof, a.found, &a.claim.Choice, told)
	a.record.Reuses(o.Reuse)
	return o
}

// settle ends the claim. If the ticket goes back into the store, the attempt has reused nothing.
func (a *attempt) settle(ctx context.Context) {
	if a.h.deps.Tickets.Settle(ctx, a.proof, &a.claim) {
		a.reuses(reuse.Told{Cached: -1})
	}
}

// run runs the legs as the connector has planned them, until decode's headers have arrived. Every exit settles the claim, and rescues a hand-over
// that decode has not taken.
func (a *attempt) run(ctx context.Context) (r *reading, err error) {
	defer a.settle(ctx)
	a.epoch = a.h.deps.Epoch.Now()
	plan, err := a.plan(ctx)
	a.record.Takes(plan.Alone, a.pair.Uncached)
	a.reuses(reuse.Told{Cached: -1})
	if err != nil {
		return nil, err
	}
	var h handed
	defer func() {
		if r == nil || h.Left {
			a.rescue(plan, h)
			return
		}
		plan.Done()
		r.untaken = func() { a.rescue(upstream.Plan{}, h) } // its events show whether decode takes the hand-over
	}()
	switch {
	case plan.Alone != "":
		a.pair.Prefilled()
	case plan.Together != nil:
		r, h, err = a.together(ctx, plan)
		return r, err
	default:
		leg := a.prefillLeg(plan)
		a.proof.IDs.Learn(ctx)
		a.send(ctx, leg)
		if h, err = a.conclude(leg); err == nil {
			a.settle(ctx) // decode may take minutes
			err = a.ready(ctx, plan, &h)
		}
	}
	if err != nil {
		return nil, err
	}
	return a.decode(ctx, h)
}

// together sends both legs at once, and waits for prefill's answer and decode's headers. If one leg fails, the other ends: without prefill's KV
// decode would wait for minutes. If the client leaves, decode's leg ends at once, but prefill's at most ten seconds later, because decode keeps the
// blocks until prefill has written them. With Mooncake both engines' blocks are free within 2 s of prefill's answer (measured), and after 480 s
// without an answer.
func (a *attempt) together(ctx context.Context, plan upstream.Plan) (r *reading, h handed, err error) {
	leg := a.prefillLeg(plan)
	h = handed{Handover: *plan.Together, until: time.Now().Add(a.h.cfg.HandoverBudget), together: true}
	var prefills sync.WaitGroup
	defer prefills.Wait() // after a panic, too: the leg's goroutine writes to the record
	both, fail := context.WithCancelCause(ctx)
	own, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	defer context.AfterFunc(ctx, func() { time.AfterFunc(detachedLimit, func() { end(context.Cause(ctx)) }) })()
	prefills.Go(func() {
		if a.send(own, leg); leg.err != nil && own.Err() == nil {
			fail(leg.err)
		}
	})
	if r, err = a.decode(both, h); err != nil && ctx.Err() == nil {
		end(err)
	}
	prefills.Wait() // from here on, both errors are known
	h, failed := a.conclude(leg)
	if leg.err == nil {
		a.reuses(reuse.Told{Cached: leg.answer.Cached})
	}
	if prefill := upstream.LegOf(context.Cause(both)); prefill != nil {
		err = prefill // decode's leg ended because prefill's failed
	} else if err == nil {
		err = failed
	}
	if err != nil && r != nil {
		r.Close()
		r = nil
	}
	return r, h, err
}

// plan asks the connector how the legs run. It passes the prompt's ids if the connector wants them, and offers the proven part of the claimed
// ticket. Without a claimed ticket it may add an unused one: the leg then releases that ticket's blocks.
func (a *attempt) plan(ctx context.Context) (upstream.Plan, error) {
	if a.pair.Prefill == nil {
		return upstream.Plan{Alone: a.pair.Alone}, nil
	}
	connector, prefill, decode := a.h.deps.Connector, a.pair.Prefill.Engine(), a.pair.Decode.Engine()
	transfer := upstream.Transfer{
		Request: a.Body, RequestID: a.legID, Prefill: prefill.Instance(), Decode: decode.Instance(),
		AsText: a.Request.API.Rendered() && a.proof.IDs.ForPrefill() != nil,
	}
	if connector.Traits().IDs {
		prompt, err := a.pair.Prefill.Prompts.Read(ctx, a.Body, a.Request.Authorization)
		switch {
		case errors.Is(err, facts.ErrNotComparable): // the prompt can't be sent to prefill as ids
			return upstream.Plan{Alone: record.WhyConnector}, nil
		case err != nil:
			prefill.Ended(err, true)
			return upstream.Plan{}, err
		}
		transfer.PromptIDs, transfer.ContextLength = prompt.IDs, prompt.ContextLength
		a.indexPrompt(prompt.IDs)
	}
	if !pick.Fits(a.Body, len(a.proof.IDs.Prompt()), prefill, decode) {
		return upstream.Plan{Alone: record.WhyLimits}, nil
	}
	if !a.pair.Quarantined && prefill.Quarantined() { // since it was picked
		failed := a.pair.Prefill.LegError(upstream.IDEcho, proof.ErrIDs)
		failed.Sent = false
		return upstream.Plan{}, failed
	}
	switch ticket := a.claim.Ticket; {
	case ticket != nil && ticket.Epoch != a.epoch: // the epoch has ended since the ticket was taken
		a.claim.Abandon(a.proof, record.ReasonQuarantined)
	case ticket == nil && a.Failed == nil:
		a.claim.Claim = a.h.deps.Pins.Piggyback(a.pair.Prefill)
	}
	transfer.Offer = a.claim.Offered(a.claim.Offer.Tokens, a.proof.IDs.ForPrefill())
	plan, err := connector.Plan(ctx, transfer)
	if err != nil && a.claim.Carries() {
		// An older or a foreign version has made the ticket. A miss that carries a release keeps its reason.
		a.h.log(a.record).Error("ticket can't be used", "error", err)
		a.claim.Abandon(a.proof, cmp.Or(a.claim.Why, record.ReasonRewritten))
		transfer.Offer = upstream.TicketOffer{}
		plan, err = connector.Plan(ctx, transfer)
	}
	return plan, err
}

// ready waits until the KV has arrived at decode, or the hand-over budget has ended. It waits only if decode can't wait by itself. KV that does not
// arrive is a failure of prefill's leg.
func (a *attempt) ready(ctx context.Context, plan upstream.Plan, h *handed) error {
	if plan.Ready == nil || h.Leg == nil {
		return context.Cause(ctx)
	}
	bounded, cancel := context.WithDeadlineCause(ctx, h.until, upstream.ErrNotReady)
	defer cancel()
	err := plan.Ready(bounded)
	if h.arrived = err == nil; h.arrived || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	failed := a.pair.Prefill.LegError(upstream.KindOf(err), err)
	a.pair.Prefill.Engine().Ended(failed, false)
	return failed
}

func (a *attempt) leg(to *fleet.Incarnation, plan upstream.LegPlan, body rawjson.Pieces) upstream.Leg {
	return upstream.Leg{
		Instance: to.Engine().Instance(), API: plan.API, Body: body, RequestID: a.legID, Rank: plan.Rank,
		Authorization: a.Request.Authorization, AnswerIDs: &to.Engine().AnswerIDs,
	}
}

// cacheSalt returns the cache_salt of the legs if decode makes the answer; "" keeps the request's own. One that engines would refuse is kept.
func (a *attempt) cacheSalt(decode *fleet.Incarnation) string {
	if a.pair.Salt != "" {
		return a.pair.Salt
	}
	salt, own := a.h.deps.Epoch.Salt(a.epoch, a.pair.Prefill, decode), a.proof.Salt
	if salt == "" {
		return a.Request.TenantSalt
	}
	if own == "" && !rawjson.IsNull(a.Body.Member("cache_salt")) {
		return ""
	}
	return upstream.Salted(salt, own)
}
