package server

import (
	"context"
	"errors"
	"time"

	"carryover/upstream"
)

// handover is what prefill hands to decode.
type handover struct {
	answered []byte             // prefill's kv_transfer_params, nil if decode gets none
	from     *upstream.Instance // the prefill instance
	until    time.Time          // end of the hand-over budget
}

// prefill runs the prefill leg. Without one, and when prefill answers no usable
// hand-over, decode gets no kv_transfer_params at all and prefills by itself:
// half an object would make it act as a prefill instance (vLLM
// nixl/base_scheduler.py).
func (s *Server) prefill(ctx context.Context, t *turn, p *pair, h *held) (handover, error) {
	defer s.settle(ctx, t, h)
	if p.prefill == nil {
		return handover{}, nil
	}
	if s.barred(p.prefill) && !p.barred { // since it was picked
		return handover{}, &upstream.LegError{Role: upstream.RolePrefill, Instance: p.prefill.Name, Kind: upstream.Receipt, Err: errReceipt}
	}
	body, err := s.prefillBody(t, p, h)
	if err != nil {
		return handover{}, err
	}
	limited, cancel := s.prefillLimit(ctx, p.prefill.Name, len(body), h)
	defer cancel()

	began := time.Now()
	t.sentTicket, t.sentRelease, h.sent = h.ticket != nil, h.release != nil, true
	t.receipt.prefill, t.receipt.legs = p.prefill.Name, t.receipt.legs+1
	t.tokens.parity = s.askParity(ctx, t, p)
	answer, err := s.deps.Engine.Prefill(limited, upstream.Leg{
		Instance: p.prefill, API: t.api, Body: body, RequestID: t.legID, Authorization: t.authorization,
	})
	took := time.Since(began)
	t.receipt.prefillTook += took
	foreign := err == nil && s.echoes.foreign(p.prefill.Name, t.legID, answer.ID)
	if foreign {
		answer.PromptIDs = nil // of another prompt
	}
	t.tokens.parity.meet(answer.PromptIDs, nil)
	if err != nil {
		if err = s.prefillFailed(t, p.prefill, h, err); err != nil {
			return handover{}, err
		}
		t.tokens.lost(whyIDs)
		return handover{}, nil
	}
	if foreign {
		s.deps.Engine.Close()
		return handover{}, &upstream.LegError{Role: upstream.RolePrefill, Instance: p.prefill.Name, Kind: upstream.Broken, Sent: true, Err: errForeign}
	}
	s.deps.Pool.Report(p.prefill, false)
	s.conclude(t, h, upstream.Answered)
	if h.ticket == nil {
		s.pace.Learn(p.prefill.Name, len(body), took)
	}
	if err := s.receiptOf(t, p, answer); err != nil {
		return handover{}, err
	}
	if answer.Params == nil {
		return handover{}, nil
	}
	_, cached, err := s.deps.Connector.DecodeParams(answer.Params, nil, p.prefill)
	if err != nil {
		s.cfg.Logger.Error("prefill's hand-over can't be used; decode prefills by itself",
			"turn", t.id, "prefill", p.prefill.Name, "error", err)
		return handover{}, nil
	}
	t.receipt.cached = cached
	return handover{answered: answer.Params, from: p.prefill, until: time.Now().Add(s.cfg.HandoverBudget)}, nil
}

// prefillBody puts together what the leg carries: the ticket as far as it was
// proven, with the ids that prove it; or none, and then perhaps an unused one to be
// released.
func (s *Server) prefillBody(t *turn, p *pair, h *held) ([]byte, error) {
	params, err := s.deps.Connector.PrefillParams(h.ticketOffer(t))
	if err != nil && h.ticket != nil { // of an older or a foreign version; it is given up
		s.cfg.Logger.Error("ticket can't be used", "turn", t.id, "error", err)
		s.conclude(t, h, upstream.Inconclusive)
		s.unuse(t, *h.ticket)
		h.ticket, t.receipt.hit, t.receipt.reason = nil, false, ReasonRewritten
		t.tokens.forward(false)
		params, err = s.deps.Connector.PrefillParams(upstream.TicketOffer{})
	}
	if err != nil {
		return nil, err
	}
	if h.ticket == nil {
		params = s.carry(t, p, h, params)
	}
	edit := upstream.PrefillEdit{Params: params, CacheSalt: t.salt, ReturnTokenIDs: t.tokens.wanted}
	if t.tokens.sent {
		edit.PromptIDs = t.tokens.raw
	}
	return t.req.PrefillBody(edit), nil
}

// ticketOffer is what the connector gets; the zero value without a ticket.
func (h *held) ticketOffer(t *turn) upstream.TicketOffer {
	if h.ticket == nil {
		return upstream.TicketOffer{}
	}
	o := upstream.TicketOffer{Ticket: h.ticket.Params, Holder: h.holder, Tokens: h.offer.Tokens, BlockSize: h.ticket.Chain.BlockSize}
	if t.tokens.sent && t.api == upstream.Chat {
		o.PromptIDs = t.tokens.raw
	}
	return o
}

// prefillLimit bounds the leg. One that carries a ticket gets less: an engine that
// never answers tickets must not cost a client the whole time limit, and none may
// read blocks that decode has freed.
func (s *Server) prefillLimit(ctx context.Context, prefill string, size int, h *held) (context.Context, context.CancelFunc) {
	limit, cause := s.cfg.PrefillTimeout, upstream.ErrPrefillTimeout
	if h.ticket != nil || h.release != nil {
		if trial := s.cfg.ReuseTrialTimeout + s.pace.Expect(prefill, size); trial < limit {
			limit, cause = trial, upstream.ErrReuseTimeout
		}
	}
	if h.ticket != nil {
		if left := untilFreed(h.ticket.Deadline); left < limit {
			limit, cause = left, upstream.ErrTicketEnded
		}
	}
	return context.WithTimeoutCause(ctx, limit, cause)
}

// untilFreed returns how long a leg may read a ticket's blocks. Its deadline is earlier
// than decode's by a margin that is for the leg.
func untilFreed(deadline time.Time) time.Duration {
	return MarginWithExpiry - TicketSlack - upstream.Elapsed(deadline, time.Now())
}

// prefillFailed records what a failure says about the ticket and the instance. A
// good status with a body that is none is not passed on: decode can do without.
func (s *Server) prefillFailed(t *turn, prefill *upstream.Instance, h *held, err error) error {
	var leg *upstream.LegError
	if !errors.As(err, &leg) {
		return err
	}
	if leg.Kind == upstream.Garbage {
		s.cfg.Logger.Error("prefill's answer can't be read; decode prefills by itself", "prefill", prefill.Name, "error", err)
		return nil
	}
	h.sent = leg.Sent
	s.conclude(t, h, fateOf(leg))
	if leg.Kind == upstream.Dial {
		s.refused(prefill)
	}
	s.releaseFailed(h, leg)
	return err
}

// refused records that an instance does not accept connections: whatever answers
// there next is another start of it.
func (s *Server) refused(instance *upstream.Instance) {
	s.deps.Pool.Report(instance, true)
	s.deps.Incarnations.Forget(instance)
}
