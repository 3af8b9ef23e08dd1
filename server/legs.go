package server

import (
	"context"
	"errors"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet"
)

// plan asks the connector how this attempt's legs run, with the ticket as far as it was proven; or with none, and
// then perhaps an unused one to be released.
func (s *turns) plan(ctx context.Context, t *turn, p *pair, h *held) (upstream.Plan, error) {
	transfer := upstream.Transfer{
		Request: t.req, RequestID: t.legID, Prefill: &p.prefill.Engine().Instance, Decode: &p.decode.Engine().Instance, Offer: h.ticketOffer(t),
	}
	if s.deps.Connector.Traits().IDs {
		var err error
		if transfer.PromptIDs, err = p.prefill.Tokenize(ctx, t.req, t.authorization); err != nil {
			return upstream.Plan{}, &upstream.LegError{Role: upstream.RolePrefill, Instance: p.prefill.Engine().Name, Kind: upstream.Garbage, Err: err}
		}
	}
	if h.ticket != nil {
		plan, err := s.deps.Connector.Plan(transfer)
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

// ticketOffer is what the connector gets; the zero value without a ticket.
func (h *held) ticketOffer(t *turn) upstream.TicketOffer {
	if h.ticket == nil {
		return upstream.TicketOffer{}
	}
	return upstream.TicketOffer{
		Ticket: h.ticket.Params, Holder: &h.holder.Engine().Instance, Tokens: h.offer.Tokens, BlockSize: h.ticket.Chain.BlockSize,
		PromptIDs: t.ids.ForPrefill(),
	}
}

// legs runs the legs of an attempt as the connector has planned them, until decode's headers have arrived. Every exit says
// what became of the ticket.
func (s *turns) legs(ctx context.Context, out *outlet, t *turn, p *pair, h *held) (*decoding, error) {
	defer s.settle(ctx, t, h)
	if p.prefill == nil {
		return s.decode(ctx, t, p, handed{})
	}
	plan, err := s.plan(ctx, t, p, h)
	if err != nil {
		return nil, err
	}
	if plan.Order == upstream.Together {
		return s.together(ctx, t, p, plan, h)
	}
	handed, err := s.prefill(ctx, t, p, plan, h)
	s.settle(ctx, t, h) // decode may take minutes
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		s.unstrand(ctx, t, p, handed)
		return nil, context.Cause(ctx)
	}
	if whole, err := s.head(ctx, out, t, plan, handed); whole || err != nil {
		return &decoding{}, err // no stream follows
	}
	return s.decode(ctx, t, p, handed)
}

// head gives the client what a hand-over has for it before decode is asked, and waits for the KV where decode can't. whole says
// that the client has its whole answer.
func (s *turns) head(ctx context.Context, out *outlet, t *turn, plan upstream.Plan, h handed) (whole bool, err error) {
	if h.Handover != nil {
		first := h.Head
		if whole = h.Whole != nil; whole {
			first = h.Whole
		}
		if first != nil {
			if t.stream {
				out.announceStream("text/event-stream; charset=utf-8")
			} else {
				out.announce("application/json", len(first))
			}
			if err := out.head(first); err != nil {
				return whole, err
			}
		}
	}
	if !whole && plan.Order == upstream.AfterReady {
		return false, plan.Ready(ctx)
	}
	return whole, nil
}

// together sends both legs at once. If the prefill leg fails, the decode leg ends: it would wait for KV that never comes, for
// minutes on some engines. Decode does not wait for prefill's answer, which is looked at when it is there.
func (s *turns) together(ctx context.Context, t *turn, p *pair, plan upstream.Plan, h *held) (*decoding, error) {
	handover, err := plan.Handover(upstream.PrefillAnswer{})
	if err != nil {
		return nil, err
	}
	both, cancel := context.WithCancelCause(ctx)
	leg := s.prefillLeg(t, p, plan)
	ended := t.record.sent(leg, p.prefill.ID())
	answered := make(chan error, 1) // one result, read once
	h.sent = true
	s.beside.run("turn", t.record.Turn, func() {
		limited, stop := context.WithTimeoutCause(both, s.cfg.PrefillTimeout, upstream.ErrPrefillTimeout)
		defer stop()
		_, err := s.deps.Legs.Prefill(limited, leg)
		answered <- err
		if err != nil {
			cancel(err)
		}
	})
	// finish ends what is left of the prefill leg, on the turn's goroutine.
	finish := func() {
		cancel(nil)
		select {
		case err := <-answered:
			ended(err)
			reached(p.prefill.Engine(), err)
		default:
			ended(context.Canceled)
		}
	}
	d, err := s.decode(both, t, p, handed{handover, p.prefill, time.Now().Add(s.cfg.HandoverBudget)})
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

// reached records whether an engine has accepted a leg's connection.
func reached(engine *fleet.Engine, err error) {
	var leg *upstream.LegError
	switch {
	case err == nil:
		engine.Answered()
	case errors.As(err, &leg) && leg.Kind == upstream.Dial:
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
