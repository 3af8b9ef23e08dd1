package turn

import (
	"context"
	"errors"
	"sync"
	"time"

	"carryover/server/answer"
	"carryover/server/pick"
	"carryover/server/record"
	"carryover/server/reuse"
	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// attempt runs the legs of one try of a turn: engines have been picked, and a ticket may have been claimed.
type attempt struct {
	h            *Handler
	pick.Attempt        // what the engines were picked for
	legID        string // X-Request-Id of the legs
	pair         *pick.Pair
	proof        *reuse.Proof
	found        *reuse.Found
	claim        reuse.Claim
	epoch        int64    // of the fleet when the first leg was about to be sent
	releases     bool     // the legs may carry a release
	doubts       *doubts  // of the turn
	failed       *failure // what the attempt leaves if it fails
}

// reuses records what the attempt reuses, by what prefill has told.
func (a *attempt) reuses(told reuse.Told) reuse.Outcome {
	o := reuse.OutcomeOf(a.proof, a.found, &a.claim.Choice, told)
	a.failed.reused = o.Reuse
	a.Record.Reuses(o.Reuse)
	return o
}

// settle ends the claim.
func (a *attempt) settle(ctx context.Context) {
	if a.h.deps.Tickets.Settle(ctx, a.proof, &a.claim, a.Record) {
		a.reuses(reuse.Told{Cached: -1})
	}
}

// run runs the legs of an attempt as the connector has planned them, until decode's headers have arrived. Every exit settles the claimed
// ticket, and has a hand-over rescued that decode has not taken.
func (a *attempt) run(ctx context.Context) (d *decoding, err error) {
	defer a.settle(ctx)
	plan, err := a.plan(ctx)
	if err != nil {
		return nil, err
	}
	var h handed
	defer func() { a.rescue(plan, h, d) }()
	switch {
	case a.pair.Prefill == nil:
	case plan.Alone != "":
		a.pair.Prefilled()
		a.Record.Alone(plan.Alone)
	case plan.Together != nil:
		d, h, err = a.together(ctx, plan)
		return d, err
	default:
		if h, err = a.prefill(ctx, plan); err != nil {
			return nil, err
		}
		a.settle(ctx) // decode may take minutes
		if err = a.ready(ctx, plan, &h); err != nil {
			return nil, err
		}
	}
	return a.decode(ctx, h)
}

// together sends both legs at once, and waits for prefill's answer and decode's headers. The failure of one leg ends the other: without
// prefill's KV decode would wait for minutes. A client that leaves ends decode's leg at once, and prefill's after ten seconds, because decode
// keeps the blocks until prefill has written them (Mooncake: both are free within 2 s of prefill's answer, measured, and without an answer
// after 480 s).
func (a *attempt) together(ctx context.Context, plan upstream.Plan) (d *decoding, h handed, err error) {
	leg := a.prefillLeg(plan)
	h = a.handed(plan.Together)
	h.together = true
	both, fail := context.WithCancelCause(ctx)
	own, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	defer context.AfterFunc(ctx, func() { time.AfterFunc(detachedLimit, func() { end(context.Cause(ctx)) }) })()
	var prefills sync.WaitGroup
	prefills.Go(func() {
		defer a.pair.Prefilled()
		if leg.run(own, a.h.deps.Legs); leg.err != nil && own.Err() == nil {
			fail(leg.err)
		}
	})
	var sent *upstream.LegError
	if d, err = a.decode(both, h); err != nil && (ctx.Err() == nil || !errors.As(err, &sent) || !sent.Sent) {
		end(err)
	}
	prefills.Wait() // both errors are known
	h, failed := a.conclude(leg)
	if leg.err == nil {
		a.Record.Cached(leg.answer.Cached)
	}
	var prefill *upstream.LegError
	switch {
	case errors.As(context.Cause(both), &prefill):
		err = prefill // decode's leg ended because prefill's failed
	case err == nil:
		err = failed
	}
	if err != nil && d != nil {
		d.Close()
		d = nil
	}
	return d, h, err
}

// plan asks the connector how this attempt's legs run. It offers the claimed ticket as far as it was proven. Without a claimed ticket it
// may add an unused ticket, whose blocks the leg then releases.
func (a *attempt) plan(ctx context.Context) (upstream.Plan, error) {
	a.epoch = a.h.deps.Epoch.Now()
	if a.pair.Prefill == nil {
		return upstream.Plan{}, nil
	}
	connector, prefill := a.h.deps.Connector, a.pair.Prefill.Engine()
	transfer, err := a.transfer(ctx)
	switch {
	case errors.Is(err, facts.ErrNotComparable): // the prompt can't be sent to prefill as ids
		return upstream.Plan{Alone: record.WhyConnector}, nil
	case err != nil:
		return upstream.Plan{}, err
	}
	if prompt := len(a.proof.IDs.Prompt()); !pick.Fits(a.Body, prompt, prefill) || !pick.Fits(a.Body, prompt, a.pair.Decode.Engine()) {
		return upstream.Plan{Alone: record.WhyLimits}, nil
	}
	if !a.pair.Quarantined && prefill.Quarantined() { // after it had been picked
		return upstream.Plan{}, idEchoFailed(prefill, false)
	}
	a.epoch = a.h.deps.Epoch.Now()
	if ticket := a.claim.Ticket; ticket != nil && ticket.Epoch == a.epoch {
		transfer.Offer = a.claim.TicketOffer(a.proof)
		plan, err := connector.Plan(ctx, transfer)
		if err == nil {
			return plan, nil
		}
		// An older or a foreign version has made the ticket. It is given up.
		a.h.cfg.Logger.Error("ticket can't be used", "turn", a.Record.ID(), "error", err)
		a.abandon(record.ReasonRewritten)
	} else if ticket != nil {
		a.abandon(record.ReasonQuarantined) // the epoch has ended since it was taken
	}
	if a.releases {
		a.claim.Piggyback = a.h.deps.Pins.Piggyback(a.pair.Prefill)
	}
	if a.claim.Piggyback != nil {
		transfer.Offer = a.claim.Piggyback.Offer()
		if plan, err := connector.Plan(ctx, transfer); err == nil {
			return plan, nil
		}
		a.claim.Piggyback.Malformed()
		a.claim.Piggyback = nil
	}
	transfer.Offer = upstream.TicketOffer{}
	return connector.Plan(ctx, transfer)
}

// abandon goes on without a claimed ticket that can't be used.
func (a *attempt) abandon(why record.Reason) {
	a.claim.Abandon(a.proof, why)
	a.reuses(reuse.Told{Cached: -1})
}

// transfer collects what the connector needs to plan an attempt, with the prompt's ids if the connector wants them.
func (a *attempt) transfer(ctx context.Context) (upstream.Transfer, error) {
	prefill := a.pair.Prefill
	transfer := upstream.Transfer{
		Request: a.Body, RequestID: a.legID, Prefill: prefill.Engine().Instance(), Decode: a.pair.Decode.Engine().Instance(),
		AsText: a.Request.API.Rendered() && a.proof.IDs.ForPrefill() != nil,
	}
	if !a.h.deps.Connector.Traits().IDs {
		return transfer, nil
	}
	prompt, err := prefill.Prompts.Read(ctx, a.Body, a.Request.Authorization)
	if err != nil {
		var question *upstream.LegError
		if errors.As(err, &question) && question.Kind == upstream.Dial {
			prefill.Engine().Refused()
		}
		return transfer, err
	}
	transfer.PromptIDs, transfer.ContextLength = prompt.IDs, prompt.ContextLength
	a.indexPrompt(prompt.IDs)
	return transfer, nil
}

// ready waits until the KV has arrived at decode, where decode can't wait by itself, at most until the hand-over budget ends. KV that does
// not arrive is a failure of prefill's leg.
func (a *attempt) ready(ctx context.Context, plan upstream.Plan, h *handed) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if h.Leg == nil {
		return nil
	}
	step := a.Record.Step(record.StepHandover)
	if plan.Ready == nil {
		step.Ended(true)
		return nil
	}
	bounded, cancel := context.WithDeadlineCause(ctx, h.until, upstream.ErrNotReady)
	defer cancel()
	err := plan.Ready(bounded)
	h.arrived = err == nil
	step.Ended(h.arrived)
	switch {
	case h.arrived:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	failed := legError(a.pair.Prefill.Engine(), upstream.Broken, err)
	if errors.Is(err, upstream.ErrNotReady) {
		failed.Kind = upstream.Timeout
	}
	Blame(a.pair.Prefill.Engine(), failed, false)
	return failed
}

// leg makes a leg that sends a body to an engine.
func (a *attempt) leg(to *fleet.Incarnation, plan upstream.LegPlan, body rawjson.Pieces) upstream.Leg {
	return upstream.Leg{
		Instance: to.Engine().Instance(), API: plan.API, Body: body, RequestID: a.legID, Rank: plan.Rank,
		Authorization: a.Request.Authorization,
	}
}

// answerID returns the id that the answers to the attempt's legs must have, "" for APIs whose engines take it from X-Request-Id.
func (a *attempt) answerID() string {
	if a.Request.API != body.Responses {
		return ""
	}
	return answer.ResponseID(a.legID)
}

// cacheSalt is the cache_salt of the legs of an attempt whose answer decode makes, "" where the request's is to stay. One that engines would
// refuse stays.
func (a *attempt) cacheSalt(decode *fleet.Incarnation) string {
	if a.pair.Salt != "" {
		return a.pair.Salt
	}
	salt, own := a.h.deps.Epoch.Salt(a.epoch, a.pair.Prefill, decode), a.proof.Salt
	if salt == "" {
		return a.Request.TenantSalt
	}
	if raw, present := a.Body.Member("cache_salt"); own == "" && present && string(raw) != "null" {
		return ""
	}
	return upstream.Salted(salt, own)
}
