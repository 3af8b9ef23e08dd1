package server

import (
	"context"
	"errors"
	"time"

	"carryover/upstream"
)

// handover is what prefill hands to decode.
type handover struct {
	params []byte    // the decode leg's kv_transfer_params, nil if decode gets none
	until  time.Time // end of the hand-over budget
}

// prefill runs the prefill leg. Without one, and when prefill answers no usable
// hand-over, decode gets no kv_transfer_params at all and prefills by itself:
// half an object would make it act as a prefill instance (vLLM
// nixl/base_scheduler.py).
func (s *Server) prefill(ctx context.Context, t *turn, p *pair, h *held) (handover, error) {
	if p.prefill == nil {
		return handover{}, nil
	}
	params, err := s.deps.Connector.PrefillParams(h.params(), h.holder)
	if err != nil && h.ticket != nil { // of an older or a foreign version; it is given up
		s.cfg.Logger.Error("ticket is malformed", "turn", t.id, "error", err)
		s.deps.Trials.End(h.prefill, h.ticket.Decode, upstream.Inconclusive)
		h.ticket, t.receipt.ticket, t.receipt.reason = nil, nil, ReasonRewritten
		params, err = s.deps.Connector.PrefillParams(nil, nil)
	}
	if err != nil {
		return handover{}, err
	}
	body := t.req.PrefillBody(upstream.PrefillEdit{Params: params, CacheSalt: t.salt})
	limited, cancel := s.prefillLimit(ctx, p.prefill.Name, len(body), h)
	defer cancel()

	began := time.Now()
	t.sentTicket, h.sent = h.ticket != nil, true
	t.receipt.prefill, t.receipt.legs = p.prefill.Name, t.receipt.legs+1
	answer, err := s.deps.Engine.Prefill(limited, upstream.Leg{
		Instance: p.prefill, API: t.api, Body: body, RequestID: t.legID, Authorization: t.authorization,
	})
	took := time.Since(began)
	t.receipt.prefillTook += took
	if err = s.prefillFailed(p.prefill, h, err); err != nil {
		return handover{}, err
	}
	s.deps.Pool.Report(p.prefill, false)
	h.fate = upstream.Answered
	if h.ticket == nil {
		s.pace.Learn(p.prefill.Name, len(body), took)
	}
	if answer.Params == nil {
		return handover{}, nil
	}
	decodeParams, cached, err := s.deps.Connector.DecodeParams(answer.Params, p.prefill)
	if err != nil {
		s.cfg.Logger.Error("prefill's hand-over can't be used; decode prefills by itself",
			"turn", t.id, "prefill", p.prefill.Name, "error", err)
		return handover{}, nil
	}
	t.receipt.cached = cached
	return handover{params: decodeParams, until: time.Now().Add(s.cfg.HandoverBudget)}, nil
}

// prefillLimit bounds the leg. One that carries a ticket gets less: an engine that
// never answers tickets must not cost a client the whole time limit.
func (s *Server) prefillLimit(ctx context.Context, prefill string, size int, h *held) (context.Context, context.CancelFunc) {
	limit, cause := s.cfg.PrefillTimeout, upstream.ErrPrefillTimeout
	if h.ticket != nil {
		if trial := s.cfg.ReuseTrialTimeout + s.pace.Expect(prefill, size); trial < limit {
			limit, cause = trial, upstream.ErrReuseTimeout
		}
	}
	return context.WithTimeoutCause(ctx, limit, cause)
}

// prefillFailed records what a failure says about the ticket and the instance. A
// good status with a body that is none is not passed on: decode can do without.
func (s *Server) prefillFailed(prefill *upstream.Instance, h *held, err error) error {
	var leg *upstream.LegError
	if !errors.As(err, &leg) {
		return err
	}
	if leg.Kind == upstream.Garbage {
		s.cfg.Logger.Error("prefill's answer can't be read; decode prefills by itself", "prefill", prefill.Name, "error", err)
		return nil
	}
	h.sent = leg.Sent
	if leg.Sent && errors.Is(leg.Err, upstream.ErrReuseTimeout) {
		h.fate = upstream.Unanswered
	}
	if leg.Kind == upstream.Dial {
		s.deps.Pool.Report(prefill, true)
	}
	return err
}
