package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"carryover/server/pick"
	"carryover/server/record"
	"carryover/server/reuse"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// legs runs the legs of an attempt in the order that the connector has planned, until decode's headers have arrived. Every exit settles
// the claimed ticket.
func (s *turns) legs(ctx context.Context, t *turn, p *pick.Pair, h *reuse.Claim) (*decoding, error) {
	defer h.Settle(ctx)
	if p.Prefill == nil {
		return s.decode(ctx, t, p, handed{})
	}
	plan, err := s.plan(ctx, t, p, h)
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
		if s.picker.NeedsPrefill() {
			return nil, noHandover(p, false, fmt.Errorf("no hand-over: %s", cmp.Or(plan.Why, record.WhyConnector)))
		}
		p.Prefilled()
		t.record.Alone(cmp.Or(plan.Why, record.WhyConnector))
		return s.decode(ctx, t, p, handed{})
	case upstream.Together:
		left = true
		return s.together(ctx, t, p, plan, h)
	}
	handed, err := s.prefill(ctx, t, p, plan, h)
	p.Prefilled()
	h.Settle(ctx) // decode may take minutes
	if err != nil {
		left = mayArrive(err) && s.takeLate(ctx, t, p, plan, handed)
		return nil, err
	}
	whole, err := s.between(ctx, t, p, plan, handed)
	switch {
	case ctx.Err() != nil, errors.Is(err, record.ErrClientGone):
		left = s.drainHandover(ctx, t, p, plan, handed)
		return nil, cmp.Or(context.Cause(ctx), err)
	case err != nil: // the KV has not arrived, so that decode must not ask for it
		if left = s.takeLate(ctx, t, p, plan, handed); !left {
			s.counts.stranded(false)
		}
		return nil, err
	case whole:
		if handed.Take != nil {
			plan.Late = nil // the leg Take serves instead
			left = s.drainHandover(ctx, t, p, plan, handed)
		}
		return &decoding{}, nil // the client has its whole answer
	}
	if unannounced(plan) {
		left = s.takeLate(ctx, t, p, plan, handed) // at the same time as the client's leg
	} else {
		s.take(ctx, t, p, handed)
	}
	d, err := s.decode(ctx, t, p, handed)
	if err != nil && handed.Handover != nil && !left {
		if left = failedSent(err) && s.takeLate(ctx, t, p, plan, handed); !left {
			s.counts.stranded(false)
		}
	}
	if err == nil && !left && plan.Late != nil {
		d.unread = func() { s.takeLate(ctx, t, p, upstream.Plan{Late: plan.Late}, handed) } // it has arrived: nothing is waited for
	}
	return d, err
}

// plan asks the connector how this attempt's legs run. It offers the claimed ticket as far as it was proven. Without a claimed ticket it
// may add an unused ticket, whose blocks the leg then releases.
func (s *turns) plan(ctx context.Context, t *turn, p *pick.Pair, h *reuse.Claim) (upstream.Plan, error) {
	transfer, err := s.transfer(ctx, t, p)
	switch {
	case errors.Is(err, facts.ErrNotComparable) && s.picker.NeedsPrefill():
		return upstream.Plan{}, &pick.NeedsPrefillError{Why: "no_ids"}
	case errors.Is(err, facts.ErrNotComparable): // the prompt can't be sent to prefill as ids
		return upstream.Plan{Order: upstream.DecodeAlone}, nil
	case err != nil:
		return upstream.Plan{}, err
	}
	transfer.Offer = h.TicketOffer()
	if engine := p.Prefill.Engine(); !p.Quarantined && (engine.Quarantined() || s.lineages.Quarantined(p.Prefill)) { // after it had been picked
		return upstream.Plan{}, idEchoFailed(engine, false)
	}
	if h.Ticket != nil && s.lineages.InDoubt(h.Ticket.Lineage) { // after it had been taken
		h.Abandon(record.ReasonQuarantined)
		transfer.Offer = upstream.TicketOffer{}
	}
	if h.Ticket != nil {
		plan, err := s.deps.Connector.Plan(transfer)
		if err == nil && plan.Order == upstream.Together {
			closePlan(plan)
			err = errTogether
		}
		if err == nil {
			return plan, nil
		}
		// An older or a foreign version has made the ticket. It is given up.
		s.cfg.Logger.Error("ticket can't be used", "turn", t.record.ID(), "error", err)
		h.Abandon(record.ReasonRewritten)
	}
	if s.cfg.Release && !t.retry.withoutRelease {
		h.Piggyback = s.pins.Releases.Piggyback(p.Prefill)
	}
	if h.Piggyback != nil {
		transfer.Offer = h.Piggyback.Offer()
		if plan, err := s.deps.Connector.Plan(transfer); err == nil {
			return plan, nil
		}
		h.Piggyback.Malformed()
		h.Piggyback = nil
	}
	transfer.Offer = upstream.TicketOffer{}
	plan, err := s.deps.Connector.Plan(transfer)
	if err == nil && plan.Order == upstream.AfterReady && !p.Prefill.PairWith(p.Decode).Announces() {
		closePlan(plan)
		t.retry.picks.NotAnnounced = true
		return upstream.Plan{}, noHandover(p, false, errNotAnnounced)
	}
	return plan, err
}

// transfer collects what the connector needs to plan an attempt: facts about both engines, and the prompt's ids if the connector wants
// them.
func (s *turns) transfer(ctx context.Context, t *turn, p *pick.Pair) (transfer upstream.Transfer, err error) {
	transfer = upstream.Transfer{
		Request: t.body, RequestID: t.legID, Prefill: p.Prefill.Engine().Instance(), Decode: p.Decode.Engine().Instance(),
		AsText: t.API.Rendered() && t.proving.IDs.ForPrefill() != nil,
	}
	traits := s.deps.Connector.Traits()
	if traits.Introduce != nil {
		if transfer.OfPrefill, err = p.Prefill.Introduction.Facts(ctx); err != nil {
			return transfer, err
		}
		if transfer.OfDecode, err = p.Decode.Introduction.Facts(ctx); err != nil {
			t.retry.last.anotherDecode = true
			return transfer, err
		}
	}
	if traits.IDs {
		prompt, err := p.Prefill.Prompts.Read(ctx, t.body, t.Authorization)
		if err != nil {
			refusedBy(p.Prefill.Engine(), err)
			return transfer, err
		}
		transfer.PromptIDs, transfer.ContextLength = prompt.IDs, prompt.ContextLength
		s.indexPrompt(t, p, prompt.IDs)
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

// errNoHandover says that prefill's answer has no hand-over, and that decode serves no turn alone.
var errNoHandover = errors.New("prefill's answer has nothing for decode")

// noHandover returns the error of an attempt that has no hand-over where decode can't serve alone. Another prefill instance may be tried.
func noHandover(p *pick.Pair, sent bool, err error) *upstream.LegError {
	kind := upstream.Garbage
	if !sent {
		kind = upstream.Dial
	}
	return &upstream.LegError{Role: upstream.RolePrefill, Instance: p.Prefill.Engine().Name, Kind: kind, Sent: sent, Err: err}
}

// between runs before decode is asked. It sends the client what the hand-over already has of the answer, and waits for the KV where decode
// can't wait itself. whole says that the client has its whole answer.
func (s *turns) between(ctx context.Context, t *turn, p *pick.Pair, plan upstream.Plan, h handed) (whole bool, err error) {
	if h.Handover == nil || ctx.Err() != nil {
		return false, nil
	}
	out, step := t.out, t.record.Step(record.StepHandover)
	defer func() { step.Ended(err == nil) }()
	switch {
	case h.Whole != nil && !t.Stream:
		out.announce("application/json", len(h.Whole))
		return true, out.head(h.Whole)
	case h.Whole != nil:
		out.announceStream(eventStream)
		return true, out.head(h.Whole)
	case h.Head != nil && t.Stream:
		out.announceStream(eventStream)
		if err := out.head(h.Head); err != nil {
			return false, err
		}
	}
	if plan.Order != upstream.AfterReady {
		return false, nil
	}
	if err = s.ready(ctx, p, plan, h, t.record.ID()); err != nil && out.committed && t.Stream && ctx.Err() == nil {
		out.lastWords(err, 0)
	}
	return false, err
}

// ready waits until the KV has arrived at decode, at most until the hand-over budget ends. An error counts as a failure of the decode leg,
// which can't be sent. turn names the turn in the log.
func (s *turns) ready(ctx context.Context, p *pick.Pair, plan upstream.Plan, h handed, turn string) error {
	bounded, cancel := context.WithDeadlineCause(ctx, h.until, upstream.ErrNotReady)
	defer cancel()
	err, pairState := plan.Ready(bounded), h.from.PairWith(p.Decode)
	switch {
	case errors.Is(context.Cause(bounded), upstream.ErrNotReady):
		if rest := pairState.NotAnnounced(h.tokens); rest > 0 {
			s.cfg.Logger.Warn("prefill does not announce its KV for this decode instance; its turns go to another prefill instance or to decode alone",
				"turn", turn, "prefill", h.from.Engine().Name, "decode", p.Decode.Engine().Name, "tried_again_in", rest.String())
		}
	case err == nil:
		pairState.Arrived(h.tokens)
	}
	var leg *upstream.LegError
	if err == nil || errors.As(err, &leg) {
		return err
	}
	leg = &upstream.LegError{Role: upstream.RoleDecode, Instance: p.Decode.Engine().Name, Kind: upstream.Broken, Sent: true, Err: err}
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
