package turn

import (
	"cmp"
	"context"
	"errors"

	"carryover/server/pick"
	"carryover/server/record"
	"carryover/server/reuse"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// legRunner runs the legs of attempts. One value serves all turns.
type legRunner struct {
	cfg    *Config
	deps   *Deps
	counts *counts
	late   chan struct{} // has one element for each wait that goes on after the hand-over budget has ended
}

// attempt runs the legs of one try of a turn: engines have been picked, and a ticket may have been claimed.
type attempt struct {
	*legRunner
	pick.Attempt          // what the engines were picked for
	legID          string // X-Request-Id of the legs
	pair           *pick.Pair
	proving        *reuse.Proving
	claim          *reuse.Claim
	epoch          int64 // of the fleet when the first leg was about to be sent
	out            *commitWriter
	withoutRelease bool       // the legs must carry no release
	tried          *attempted // what the attempt gets to
	turn           detacher
}

// detacher is a turn whose slot and reserved bytes can outlive it.
type detacher interface{ detach() (end func()) }

// run runs the legs of an attempt in the order that the connector has planned, until decode's headers have arrived. Every exit settles
// the claimed ticket.
func (a *attempt) run(ctx context.Context) (*decoding, error) {
	defer a.claim.Settle(ctx)
	a.epoch = a.deps.Epoch.Now()
	if a.pair.Prefill == nil {
		return a.decode(ctx, handed{})
	}
	plan, err := a.plan(ctx)
	if err != nil {
		return nil, err
	}
	left := false // background work goes on with the plan and will close it
	defer func() {
		if !left {
			closePlan(plan)
		}
	}()
	switch plan.Order {
	case upstream.DecodeAlone:
		a.pair.Prefilled()
		a.Record.Alone(cmp.Or(plan.Why, record.WhyConnector))
		return a.decode(ctx, handed{})
	case upstream.Together:
		left = true
		return a.together(ctx, plan)
	}
	handed, err := a.prefill(ctx, plan)
	a.pair.Prefilled()
	a.claim.Settle(ctx) // decode may take minutes
	if err != nil {
		left = mayArrive(err) && a.takeLate(ctx, plan, handed)
		return nil, err
	}
	whole, err := a.between(ctx, plan, handed)
	switch {
	case ctx.Err() != nil, errors.Is(err, record.ErrClientGone):
		left = a.drainHandover(ctx, plan, handed)
		return nil, cmp.Or(context.Cause(ctx), err)
	case err != nil: // the KV has not arrived, so that decode must not ask for it
		if left = a.takeLate(ctx, plan, handed); !left {
			a.counts.stranded(false)
		}
		return nil, err
	case whole:
		if handed.Take != nil {
			plan.Late = nil // the leg Take serves instead
			left = a.drainHandover(ctx, plan, handed)
		}
		return &decoding{}, nil // the client has its whole answer
	}
	if unannounced(plan) {
		left = a.takeLate(ctx, plan, handed) // at the same time as the client's leg
	} else {
		a.take(ctx, handed)
	}
	d, err := a.decode(ctx, handed)
	if err != nil && handed.Handover != nil && !left {
		if left = failedSent(err) && a.takeLate(ctx, plan, handed); !left {
			a.counts.stranded(false)
		}
	}
	if err == nil && !left && plan.Late != nil {
		d.unread = func() { a.takeLate(ctx, upstream.Plan{Late: plan.Late}, handed) } // it has arrived: nothing is waited for
	}
	return d, err
}

// plan asks the connector how this attempt's legs run. It offers the claimed ticket as far as it was proven. Without a claimed ticket it
// may add an unused ticket, whose blocks the leg then releases.
func (a *attempt) plan(ctx context.Context) (upstream.Plan, error) {
	transfer, err := a.transfer(ctx)
	switch {
	case errors.Is(err, facts.ErrNotComparable): // the prompt can't be sent to prefill as ids
		return upstream.Plan{Order: upstream.DecodeAlone}, nil
	case err != nil:
		return upstream.Plan{}, err
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
		plan, err := a.deps.Connector.Plan(transfer)
		if err == nil && plan.Order == upstream.Together {
			closePlan(plan)
			err = errTogether
		}
		if err == nil {
			return plan, nil
		}
		// An older or a foreign version has made the ticket. It is given up.
		a.cfg.Logger.Error("ticket can't be used", "turn", a.Record.ID(), "error", err)
		a.claim.Abandon(record.ReasonRewritten)
	}
	if a.cfg.Release && !a.withoutRelease {
		a.claim.Piggyback = a.deps.Pins.Releases.Piggyback(a.pair.Prefill)
	}
	if a.claim.Piggyback != nil {
		transfer.Offer = a.claim.Piggyback.Offer()
		if plan, err := a.deps.Connector.Plan(transfer); err == nil {
			return plan, nil
		}
		a.claim.Piggyback.Malformed()
		a.claim.Piggyback = nil
	}
	transfer.Offer = upstream.TicketOffer{}
	plan, err := a.deps.Connector.Plan(transfer)
	if err == nil && plan.Order == upstream.AfterReady && !a.pair.Prefill.PairWith(a.pair.Decode).Announces() {
		closePlan(plan)
		a.tried.notAnnounced = true
		return upstream.Plan{}, &upstream.LegError{
			Role: upstream.RolePrefill, Instance: a.pair.Prefill.Engine().Name, Kind: upstream.Dial, Err: errNotAnnounced,
		}
	}
	return plan, err
}

// transfer collects what the connector needs to plan an attempt: facts about both engines, and the prompt's ids if the connector wants
// them.
func (a *attempt) transfer(ctx context.Context) (transfer upstream.Transfer, err error) {
	transfer = upstream.Transfer{
		Request: a.Body, RequestID: a.legID, Prefill: a.pair.Prefill.Engine().Instance(), Decode: a.pair.Decode.Engine().Instance(),
		AsText: a.Request.API.Rendered() && a.proving.IDs.ForPrefill() != nil,
	}
	traits := a.deps.Connector.Traits()
	if traits.Introduce != nil {
		if transfer.OfPrefill, err = a.pair.Prefill.Introduction.Facts(ctx); err != nil {
			return transfer, err
		}
		if transfer.OfDecode, err = a.pair.Decode.Introduction.Facts(ctx); err != nil {
			a.tried.anotherDecode = true
			return transfer, err
		}
	}
	if traits.IDs {
		prompt, err := a.pair.Prefill.Prompts.Read(ctx, a.Body, a.Request.Authorization)
		if err != nil {
			refusedBy(a.pair.Prefill.Engine(), err)
			return transfer, err
		}
		transfer.PromptIDs, transfer.ContextLength = prompt.IDs, prompt.ContextLength
		a.indexPrompt(prompt.IDs)
	}
	return transfer, nil
}

// closePlan gives back the resources that a plan has reserved.
func closePlan(plan upstream.Plan) {
	if plan.Close != nil {
		plan.Close()
	}
}

// errNotAnnounced says that prefill's KV has not been announced for the turn's decode instance.
var errNotAnnounced = errors.New("prefill's KV has not been announced for this decode instance of late")

// between runs before decode is asked. It sends the client what the hand-over already has of the answer, and waits for the KV where decode
// can't wait itself. whole says that the client has its whole answer.
func (a *attempt) between(ctx context.Context, plan upstream.Plan, h handed) (whole bool, err error) {
	if h.Handover == nil || ctx.Err() != nil {
		return false, nil
	}
	out, step := a.out, a.Record.Step(record.StepHandover)
	defer func() { step.Ended(err == nil) }()
	switch {
	case h.Whole != nil && !a.Request.Stream:
		out.announce("application/json", len(h.Whole))
		return true, out.head(h.Whole)
	case h.Whole != nil:
		out.announceWholeStream()
		return true, out.head(h.Whole)
	case h.Head != nil && a.Request.Stream:
		out.announceStream(eventStream)
		if err := out.head(h.Head); err != nil {
			return false, err
		}
	}
	if plan.Order != upstream.AfterReady {
		return false, nil
	}
	if err = a.ready(ctx, a.pair.Decode, plan, h, a.Record.ID()); err != nil && out.committed && a.Request.Stream && ctx.Err() == nil {
		out.lastWords(err, 0)
	}
	return false, err
}

// ready waits until the KV has arrived at decode, at most until the hand-over budget ends. An error counts as a failure of the decode leg,
// which can't be sent. turn names the turn in the log.
func (r *legRunner) ready(ctx context.Context, decode *fleet.Incarnation, plan upstream.Plan, h handed, turn string) error {
	bounded, cancel := context.WithDeadlineCause(ctx, h.until, upstream.ErrNotReady)
	defer cancel()
	err, pairState := plan.Ready(bounded), h.from.PairWith(decode)
	switch {
	case errors.Is(context.Cause(bounded), upstream.ErrNotReady):
		if rest := pairState.NotAnnounced(h.tokens); rest > 0 {
			r.cfg.Logger.Warn("prefill does not announce its KV for this decode instance; its turns go to another prefill instance or to decode alone",
				"turn", turn, "prefill", h.from.Engine().Name, "decode", decode.Engine().Name, "tried_again_in", rest.String())
		}
	case err == nil:
		pairState.Arrived(h.tokens)
	}
	var leg *upstream.LegError
	if err == nil || errors.As(err, &leg) {
		return err
	}
	leg = &upstream.LegError{Role: upstream.RoleDecode, Instance: decode.Engine().Name, Kind: upstream.Broken, Sent: true, Err: err}
	if cause := context.Cause(bounded); cause != nil && upstream.IsTimeout(cause) {
		leg.Kind, leg.Err = upstream.Timeout, errors.Join(cause, err) // the connector's error may say what to look at
	}
	return leg
}

// refusedBy tells the fleet if an engine has refused the connection of a request that is not a leg.
func refusedBy(engine *fleet.Engine, err error) {
	var question *upstream.LegError
	if errors.As(err, &question) && question.Kind == upstream.Dial {
		engine.Refused()
	}
}
