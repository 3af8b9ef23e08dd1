package server

import (
	"cmp"
	"context"
	"errors"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet"
)

// legs runs the legs of an attempt as the connector has planned them, until decode's headers have arrived. Every exit says
// what became of the ticket.
func (s *turns) legs(ctx context.Context, out *outlet, t *turn, p *pair, h *held) (*decoding, error) {
	defer s.settle(ctx, t, h)
	if p.prefill == nil {
		return s.decode(ctx, t, p, handed{})
	}
	plan, err := s.plan(ctx, t, p, h)
	switch {
	case err != nil:
		return nil, err
	case plan.Order == upstream.DecodeAlone:
		p.prefilled()
		t.record.Path.alone(whyConnector)
		return s.decode(ctx, t, p, handed{})
	case plan.Order == upstream.Together:
		return s.together(ctx, t, p, plan, h)
	}
	handed, err := s.prefill(ctx, t, p, plan, h)
	p.prefilled()
	s.settle(ctx, t, h) // decode may take minutes
	if err != nil {
		return nil, err
	}
	whole, err := s.between(ctx, out, t, p, plan, handed)
	switch {
	case ctx.Err() != nil, errors.Is(err, errClientGone):
		s.unstrand(ctx, t, p, plan, handed)
		return nil, cmp.Or(context.Cause(ctx), err)
	case err != nil:
		return nil, err
	case whole:
		return &decoding{}, nil // no stream follows
	}
	return s.decode(ctx, t, p, handed)
}

// plan asks the connector how this attempt's legs run, with the ticket as far as it was proven; or with none, and
// then perhaps an unused one to be released.
func (s *turns) plan(ctx context.Context, t *turn, p *pair, h *held) (upstream.Plan, error) {
	transfer, err := s.transfer(ctx, t, p)
	switch {
	case errors.Is(err, fleet.ErrNotComparable): // prefill can't be given the prompt as ids
		return upstream.Plan{Order: upstream.DecodeAlone}, nil
	case err != nil:
		return upstream.Plan{}, err
	}
	transfer.Offer = h.ticketOffer(t)
	if engine := p.prefill.Engine(); engine.Barred() && !p.barred { // since it was picked
		return upstream.Plan{}, receiptFailed(engine, false)
	}
	if h.ticket != nil {
		plan, err := s.deps.Connector.Plan(transfer)
		if err == nil && plan.Order == upstream.Together {
			err = errTogether
		}
		if err == nil {
			return plan, nil
		}
		// Of an older or a foreign version; it is given up.
		s.cfg.Logger.Error("ticket can't be used", "turn", t.record.Turn, "error", err)
		s.abandon(t, h)
	}
	if s.cfg.Release && !t.tries.withoutRelease {
		h.rider = s.releaser.rider(p.prefill)
	}
	if h.rider != nil {
		transfer.Offer = h.rider.offer()
		if plan, err := s.deps.Connector.Plan(transfer); err == nil {
			return plan, nil
		}
		h.rider = nil
	}
	transfer.Offer = upstream.TicketOffer{}
	return s.deps.Connector.Plan(transfer)
}

// transfer is what the connector is told of the attempt: what it has to know of both engines, and the ids of the prompt,
// where it wants that.
func (s *turns) transfer(ctx context.Context, t *turn, p *pair) (transfer upstream.Transfer, err error) {
	transfer = upstream.Transfer{
		Request: t.req, RequestID: t.legID, Prefill: &p.prefill.Engine().Instance, Decode: &p.decode.Engine().Instance,
	}
	traits := s.deps.Connector.Traits()
	if traits.Introduce != nil {
		if transfer.OfPrefill, err = p.prefill.Introduced(ctx); err != nil {
			return transfer, err
		}
		if transfer.OfDecode, err = p.decode.Introduced(ctx); err != nil {
			t.tries.anotherDecode = true
			return transfer, err
		}
	}
	if traits.IDs {
		if transfer.PromptIDs, err = p.prefill.Tokenize(ctx, t.req, t.authorization); err != nil {
			refusedBy(p.prefill.Engine(), err)
		}
	}
	return transfer, err
}

// between gives the client what a hand-over has for it before decode is asked, and waits for the KV where decode can't.
// whole says that the client has its whole answer.
func (s *turns) between(ctx context.Context, out *outlet, t *turn, p *pair, plan upstream.Plan, h handed) (whole bool, err error) {
	if h.Handover == nil || ctx.Err() != nil {
		return false, nil
	}
	switch {
	case h.Whole != nil && !t.stream:
		out.announce("application/json", len(h.Whole))
		return true, out.head(h.Whole)
	case h.Whole != nil:
		out.announceStream(eventStream)
		return true, out.head(h.Whole)
	case h.Head != nil && t.stream:
		out.announceStream(eventStream)
		if err := out.head(h.Head); err != nil {
			return false, err
		}
	}
	if plan.Order != upstream.AfterReady {
		return false, nil
	}
	if err = s.ready(ctx, p.decode, plan, h.until); err != nil && t.committed && t.stream && ctx.Err() == nil {
		out.lastWords(err)
	}
	return false, err
}

// ready waits until the KV has arrived at decode, for as long as the hand-over budget lasts. What fails is the decode leg: it
// can't be sent.
func (s *turns) ready(ctx context.Context, decode *fleet.Start, plan upstream.Plan, until time.Time) error {
	bounded, cancel := context.WithDeadlineCause(ctx, until, upstream.ErrNotReady)
	defer cancel()
	err := plan.Ready(bounded)
	var leg *upstream.LegError
	if err == nil || errors.As(err, &leg) {
		return err
	}
	leg = &upstream.LegError{Role: upstream.RoleDecode, Instance: decode.Engine().Name, Kind: upstream.Broken, Sent: true, Err: err}
	if cause := context.Cause(bounded); cause != nil && upstream.IsTimeout(cause) {
		leg.Kind, leg.Err = upstream.Timeout, cause
	}
	return leg
}

// together sends both legs at once. If the prefill leg fails, the decode leg ends: it would wait for KV that never comes, for
// minutes on some engines. Decode does not wait for prefill's answer, which is looked at when the turn ends.
func (s *turns) together(ctx context.Context, t *turn, p *pair, plan upstream.Plan, h *held) (*decoding, error) {
	handover, err := plan.Handover(upstream.PrefillAnswer{})
	if err != nil {
		return nil, err
	}
	both, cancel := context.WithCancelCause(ctx)
	leg := s.prefillLeg(t, p, plan)
	ended := t.record.sent(leg, p.prefill.ID())
	answered := make(chan prefilled, 1) // one result, read once
	h.sent = true
	began := time.Now()
	s.beside.run("turn", t.record.Turn, func() {
		limited, stop := context.WithTimeoutCause(both, s.cfg.PrefillTimeout, upstream.ErrPrefillTimeout)
		defer stop()
		_, err := s.deps.Legs.Prefill(limited, leg)
		p.prefilled()
		answered <- prefilled{time.Since(began), err}
		if err != nil {
			cancel(err)
		}
	})
	// finish ends what is left of the prefill leg, on the turn's goroutine.
	finish := func() {
		cancel(nil)
		select {
		case prefill := <-answered:
			ended(prefill.took, prefill.err)
			t.ended(p.prefill.Engine(), prefill.err)
		default:
			ended(time.Since(began), errUnanswered)
		}
	}
	d, err := s.decode(both, t, p, handed{Handover: handover, from: p.prefill, until: time.Now().Add(s.cfg.HandoverBudget), together: true})
	if err != nil {
		if cause := legErrorOf(both); cause != nil {
			err = cause // decode's leg ended because of prefill's
		}
		finish()
		return nil, err
	}
	d.both, d.finish = both, finish
	return d, nil
}

// prefilled is how a prefill leg ended that runs beside the decode leg.
type prefilled struct {
	took time.Duration
	err  error
}

// errTogether is a ticket that a connector would send together with the decode leg.
var errTogether = errors.New("no ticket goes with legs that are sent together")

// errUnanswered is the record of a prefill leg that had not answered when its turn ended.
var errUnanswered = errors.New("not answered when the turn ended")

// refusedBy records whether an engine has refused the connection of a question that is no leg.
func refusedBy(engine *fleet.Engine, err error) {
	var question *upstream.LegError
	if errors.As(err, &question) && question.Kind == upstream.Dial {
		engine.Refused()
	}
}

// legErrorOf is the failure of the other leg with which a context was ended, nil if it was not.
func legErrorOf(ctx context.Context) error {
	var leg *upstream.LegError
	if errors.As(context.Cause(ctx), &leg) {
		return leg
	}
	return nil
}
