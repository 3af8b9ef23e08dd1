package turn

import (
	"context"
	"errors"
	"sync"
	"time"

	"carryover/server/answer"
	"carryover/server/pick"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/server/reuse"
	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// attempt is one try of a turn: its engines, the ticket that it has claimed, and what its legs have come to.
type attempt struct {
	*turn
	pair   *pick.Pair
	claim  reuse.Claim
	epoch  int64 // of the fleet when the first leg was about to be sent
	plan   upstream.Plan
	handed handed // the zero value is nothing
}

// find proves how much of a ticket may be used, and claims it. A miss is a claim without a ticket.
func (a *attempt) find() {
	a.proof = a.admitted.Prove(a.ctx, a.pair.Prefill, a.pair.Decode, a.pair.Quarantined, a.record.ID())
	a.claim, a.found = a.deps.Tickets.Find(a.ctx, &a.proof, a.found, a.without)
	a.reuses(reuse.Told{Cached: -1})
}

// reuses records what the attempt reuses, by what prefill has told.
func (a *attempt) reuses(told reuse.Told) reuse.Outcome {
	o := reuse.OutcomeOf(&a.proof, &a.found, &a.claim.Choice, told)
	a.failed.reused = o.Reuse
	a.record.Reuses(o.Reuse)
	return o
}

// settle ends the claim.
func (a *attempt) settle() {
	if a.deps.Tickets.Settle(a.ctx, &a.proof, &a.claim, &a.record) {
		a.reuses(reuse.Told{Cached: -1})
	}
}

// run runs the legs of an attempt as the connector has planned them, until decode's headers have arrived. Every exit settles the claimed
// ticket, and has a hand-over rescued that decode has not taken.
func (a *attempt) run() (r *reading, err error) {
	defer a.settle()
	if err = a.makePlan(); err != nil {
		return nil, err
	}
	defer func() { a.rescue(r) }()
	switch {
	case a.pair.Prefill == nil:
	case a.plan.Alone != "":
		a.pair.Prefilled()
		a.record.Alone(a.plan.Alone)
	case a.plan.Together != nil:
		return a.together()
	default:
		if err = a.prefill(); err != nil {
			return nil, err
		}
		a.settle() // decode may take minutes
		if err = a.ready(); err != nil {
			return nil, err
		}
	}
	return a.decode(a.ctx)
}

// together sends both legs at once, and waits for prefill's answer and decode's headers. The failure of one leg ends the other: without
// prefill's KV decode would wait for minutes. A client that leaves ends decode's leg at once, and prefill's after ten seconds, because decode
// keeps the blocks until prefill has written them (Mooncake: both are free within 2 s of prefill's answer, measured, and without an answer
// after 480 s).
func (a *attempt) together() (r *reading, err error) {
	ctx, leg := a.ctx, a.prefillLeg()
	a.hand(a.plan.Together)
	both, fail := context.WithCancelCause(ctx)
	own, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	defer context.AfterFunc(ctx, func() { time.AfterFunc(detachedLimit, func() { end(context.Cause(ctx)) }) })()
	var prefills sync.WaitGroup
	prefills.Go(func() {
		defer a.pair.Prefilled()
		if a.send(own, leg); leg.err != nil && own.Err() == nil {
			fail(leg.err)
		}
	})
	if r, err = a.decode(both); err != nil && (ctx.Err() == nil || !legOf(err).Sent) {
		end(err)
	}
	prefills.Wait() // both errors are known
	failed := a.conclude(leg)
	if leg.err == nil {
		a.record.Cached(leg.answer.Cached)
	}
	if prefill := legOf(context.Cause(both)); prefill != nil {
		err = prefill // decode's leg ended because prefill's failed
	} else if err == nil {
		err = failed
	}
	if err != nil && r != nil {
		r.Close()
		r = nil
	}
	return r, err
}

// makePlan asks the connector how this attempt's legs run, with the prompt's ids if the connector wants them. It offers the claimed ticket as
// far as it was proven. Without a claimed ticket it may add an unused ticket, whose blocks the leg then releases.
func (a *attempt) makePlan() (err error) {
	a.epoch = a.deps.Epoch.Now()
	if a.pair.Prefill == nil {
		return nil
	}
	connector, prefill, decode := a.deps.Connector, a.pair.Prefill.Engine(), a.pair.Decode.Engine()
	transfer := upstream.Transfer{
		Request: a.body, RequestID: a.legID, Prefill: prefill.Instance(), Decode: decode.Instance(),
		AsText: a.API.Rendered() && a.proof.IDs.ForPrefill() != nil,
	}
	if connector.Traits().IDs {
		prompt, err := a.pair.Prefill.Prompts.Read(a.ctx, a.body, a.Authorization)
		switch {
		case errors.Is(err, facts.ErrNotComparable): // the prompt can't be sent to prefill as ids
			a.plan.Alone = record.WhyConnector
			return nil
		case err != nil:
			Blame(prefill, err, true)
			return err
		}
		transfer.PromptIDs, transfer.ContextLength = prompt.IDs, prompt.ContextLength
		a.indexPrompt(prompt.IDs)
	}
	if prompt := len(a.proof.IDs.Prompt()); !pick.Fits(a.body, prompt, prefill) || !pick.Fits(a.body, prompt, decode) {
		a.plan.Alone = record.WhyLimits
		return nil
	}
	if !a.pair.Quarantined && prefill.Quarantined() { // after it had been picked
		failed := legError(a.pair.Prefill, upstream.IDEcho, proof.ErrIDs)
		failed.Sent = false
		return failed
	}
	a.epoch = a.deps.Epoch.Now()
	plan := func(offer upstream.TicketOffer) error {
		transfer.Offer = offer
		a.plan, err = connector.Plan(a.ctx, transfer)
		return err
	}
	switch ticket := a.claim.Ticket; {
	case ticket == nil:
	case ticket.Epoch != a.epoch: // it has ended since the ticket was taken
		a.abandon(record.ReasonQuarantined)
	case plan(a.claim.TicketOffer(&a.proof)) == nil:
		return nil
	default: // an older or a foreign version has made the ticket, which is given up
		a.log().Error("ticket can't be used", "error", err)
		a.abandon(record.ReasonRewritten)
	}
	if a.cfg.Release && a.without.Why == "" {
		a.claim.Piggyback = a.deps.Pins.Piggyback(a.pair.Prefill)
	}
	if unused := a.claim.Piggyback; unused != nil {
		if plan(unused.Offer()) == nil {
			return nil
		}
		unused.Malformed()
		a.claim.Piggyback = nil
	}
	return plan(upstream.TicketOffer{})
}

// abandon goes on without a claimed ticket that can't be used.
func (a *attempt) abandon(why record.Reason) {
	a.claim.Abandon(&a.proof, why)
	a.reuses(reuse.Told{Cached: -1})
}

// ready waits until the KV has arrived at decode, where decode can't wait by itself, at most until the hand-over budget ends. KV that does
// not arrive is a failure of prefill's leg.
func (a *attempt) ready() error {
	if cause := context.Cause(a.ctx); cause != nil || a.handed.Leg == nil {
		return cause
	}
	var err error
	step := a.record.Step(record.StepHandover)
	if a.plan.Ready != nil {
		bounded, cancel := context.WithDeadlineCause(a.ctx, a.handed.until, upstream.ErrNotReady)
		defer cancel()
		err = a.plan.Ready(bounded)
		a.handed.arrived = err == nil
	}
	step.Ended(err == nil)
	switch {
	case err == nil:
		return nil
	case a.ctx.Err() != nil:
		return context.Cause(a.ctx)
	}
	kind := upstream.Broken
	if errors.Is(err, upstream.ErrNotReady) {
		kind = upstream.Timeout
	}
	failed := legError(a.pair.Prefill, kind, err)
	Blame(a.pair.Prefill.Engine(), failed, false)
	return failed
}

// leg makes a leg that sends a body to an engine.
func (a *attempt) leg(to *fleet.Incarnation, plan upstream.LegPlan, body rawjson.Pieces) upstream.Leg {
	return upstream.Leg{
		Instance: to.Engine().Instance(), API: plan.API, Body: body, RequestID: a.legID, Rank: plan.Rank, Authorization: a.Authorization,
	}
}

// answerID returns the id that the answers to the attempt's legs must have, "" for APIs whose engines take it from X-Request-Id.
func (a *attempt) answerID() string {
	if a.API != body.Responses {
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
	salt, own := a.deps.Epoch.Salt(a.epoch, a.pair.Prefill, decode), a.proof.Salt
	if salt == "" {
		return a.TenantSalt
	}
	if raw, _ := a.body.Member("cache_salt"); own == "" && !rawjson.IsNull(raw) {
		return ""
	}
	return upstream.Salted(salt, own)
}
