package turn

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"carryover/server/pick"
	"carryover/server/record"
	"carryover/server/reuse"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// legRunner runs the legs of attempts. One value serves all turns.
type legRunner struct {
	cfg     *Config
	deps    *Deps
	counts  *counts
	rescues chan struct{} // has one element for each rescue that runs
}

// attempt runs the legs of one try of a turn: engines have been picked, and a ticket may have been claimed.
type attempt struct {
	*legRunner
	pick.Attempt          // what the engines were picked for
	legID          string // X-Request-Id of the legs
	pair           *pick.Pair
	proving        *reuse.Proving
	claim          *reuse.Claim
	epoch          int64      // of the fleet when the first leg was about to be sent
	withoutRelease bool       // the legs must carry no release
	tried          *attempted // what the attempt gets to
	doubts         *doubts    // of the turn
}

// run runs the legs of an attempt as the connector has planned them, until decode's headers have arrived. Every exit settles the claimed
// ticket, and has a hand-over rescued that decode has not taken.
func (a *attempt) run(ctx context.Context) (d *decoding, err error) {
	defer a.claim.Settle(ctx)
	a.epoch = a.deps.Epoch.Now()
	if a.pair.Prefill == nil {
		return a.decode(ctx, handed{})
	}
	plan, err := a.plan(ctx)
	if err != nil {
		return nil, err
	}
	if plan.Alone != "" {
		a.pair.Prefilled()
		a.Record.Alone(plan.Alone)
		return a.decode(ctx, handed{})
	}
	var h handed
	defer func() { a.rescue(plan, h, d) }()
	if plan.Together != nil {
		d, h, err = a.together(ctx, plan)
		return d, err
	}
	if h, err = a.prefill(ctx, plan); err != nil {
		return nil, err
	}
	a.claim.Settle(ctx) // decode may take minutes
	if err = a.ready(ctx, plan, &h); err != nil {
		return nil, err
	}
	return a.decode(ctx, h)
}

// together sends both legs at once, and waits for prefill's answer and decode's headers. The failure of one leg ends the other: without
// prefill's KV decode would wait for minutes. A client that leaves ends decode's leg at once, and prefill's after ten seconds, because decode
// keeps the blocks until prefill has written them (Mooncake: both are free within 2 s of prefill's answer, measured, and without an answer
// after 480 s).
func (a *attempt) together(ctx context.Context, plan upstream.Plan) (d *decoding, h handed, err error) {
	leg := a.newPrefillLeg(plan)
	h = a.handed(plan.Together)
	h.together = true
	both, fail := context.WithCancelCause(ctx)
	detached, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	defer context.AfterFunc(ctx, func() { time.AfterFunc(detachedLimit, func() { end(context.Cause(ctx)) }) })()
	group, own := errgroup.WithContext(detached)
	group.Go(func() error {
		defer a.pair.Prefilled()
		if leg.run(own); leg.err != nil && own.Err() == nil {
			fail(leg.err)
		}
		return leg.err
	})
	group.Go(func() error {
		if d, err = a.decode(both, h); err != nil && ctx.Err() != nil && failedSent(err) {
			return nil
		}
		return err
	})
	_ = group.Wait() // both errors are known
	h, failed := leg.conclude(a)
	if leg.err == nil {
		a.claim.Cached(leg.answer.Cached)
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

// failedSent reports whether a failed leg may have reached its engine.
func failedSent(err error) bool {
	var leg *upstream.LegError
	return errors.As(err, &leg) && leg.Sent
}

// plan asks the connector how this attempt's legs run. It offers the claimed ticket as far as it was proven. Without a claimed ticket it
// may add an unused ticket, whose blocks the leg then releases.
func (a *attempt) plan(ctx context.Context) (upstream.Plan, error) {
	transfer, err := a.transfer(ctx)
	switch {
	case errors.Is(err, facts.ErrNotComparable): // the prompt can't be sent to prefill as ids
		return upstream.Plan{Alone: record.WhyConnector}, nil
	case err != nil:
		return upstream.Plan{}, err
	}
	if prompt := len(a.proving.IDs.Prompt()); !pick.Fits(a.Body, prompt, a.pair.Prefill.Engine()) || !pick.Fits(a.Body, prompt, a.pair.Decode.Engine()) {
		return upstream.Plan{Alone: record.WhyLimits}, nil
	}
	transfer.Offer = a.claim.TicketOffer()
	if engine := a.pair.Prefill.Engine(); !a.pair.Quarantined && engine.Quarantined() { // after it had been picked
		return upstream.Plan{}, idEchoFailed(engine, false)
	}
	a.epoch = a.deps.Epoch.Now()
	if a.claim.Ticket != nil && a.claim.Ticket.Epoch != a.epoch { // since it was taken
		a.claim.Abandon(record.ReasonQuarantined)
		transfer.Offer = upstream.TicketOffer{}
	}
	if a.claim.Ticket != nil {
		plan, err := a.deps.Connector.Plan(ctx, transfer)
		if err == nil {
			return plan, nil
		}
		// An older or a foreign version has made the ticket. It is given up.
		a.cfg.Logger.Error("ticket can't be used", "turn", a.Record.ID(), "error", err)
		a.claim.Abandon(record.ReasonRewritten)
	}
	if a.cfg.Release && !a.withoutRelease {
		a.claim.Piggyback = a.deps.Pins.Piggyback(a.pair.Prefill)
	}
	if a.claim.Piggyback != nil {
		transfer.Offer = a.claim.Piggyback.Offer()
		if plan, err := a.deps.Connector.Plan(ctx, transfer); err == nil {
			return plan, nil
		}
		a.claim.Piggyback.Malformed()
		a.claim.Piggyback = nil
	}
	transfer.Offer = upstream.TicketOffer{}
	return a.deps.Connector.Plan(ctx, transfer)
}

// transfer collects what the connector needs to plan an attempt, with the prompt's ids if the connector wants them.
func (a *attempt) transfer(ctx context.Context) (upstream.Transfer, error) {
	transfer := upstream.Transfer{
		Request: a.Body, RequestID: a.legID, Prefill: a.pair.Prefill.Engine().Instance(), Decode: a.pair.Decode.Engine().Instance(),
		AsText: a.Request.API.Rendered() && a.proving.IDs.ForPrefill() != nil,
	}
	if !a.deps.Connector.Traits().IDs {
		return transfer, nil
	}
	prompt, err := a.pair.Prefill.Prompts.Read(ctx, a.Body, a.Request.Authorization)
	if err != nil {
		refusedBy(a.pair.Prefill.Engine(), err)
		return transfer, err
	}
	transfer.PromptIDs, transfer.ContextLength = prompt.IDs, prompt.ContextLength
	a.indexPrompt(prompt.IDs)
	return transfer, nil
}

// refusedBy tells the fleet if an engine has refused the connection of a request that is not a leg.
func refusedBy(engine *fleet.Engine, err error) {
	var question *upstream.LegError
	if errors.As(err, &question) && question.Kind == upstream.Dial {
		engine.Refused()
	}
}

// ready waits until the KV has arrived at decode, where decode can't wait by itself, at most until the hand-over budget ends. KV that does
// not arrive is a failure of prefill's leg.
func (a *attempt) ready(ctx context.Context, plan upstream.Plan, h *handed) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if h.Handover == nil {
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
	step.Ended(err == nil)
	switch {
	case err == nil:
		h.arrived = true
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	engine := a.pair.Prefill.Engine()
	failed := &upstream.LegError{Role: upstream.RolePrefill, Instance: engine.Name, Kind: upstream.Broken, Sent: true, Err: err}
	if errors.Is(err, upstream.ErrNotReady) {
		failed.Kind = upstream.Timeout
	}
	Blame(engine, failed, false)
	return failed
}
