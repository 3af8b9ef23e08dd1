package server

import (
	"context"
	"errors"
	"time"

	"carryover/convcache"
	"carryover/server/lineage"
	"carryover/server/pick"
	"carryover/server/pins"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/server/reuse"
	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// handed is what prefill hands to decode.
type handed struct {
	*upstream.Handover                    // nil if decode prefills by itself
	from               *fleet.Incarnation // the incarnation of prefill that has the KV
	until              time.Time          // end of the hand-over budget
	together           bool               // prefill's leg runs at the same time as decode's
	tokens             int                // tokens of the prompt that prefill computed, 0 if it does not report them

	lineage   convcache.Lineage     // the incarnations out of whose caches the KV may have come
	prefilled []convcache.Prefilled // how many tokens of the prompt prefix caches hold now
}

// prefill runs the prefill leg. If prefill answers no usable hand-over, decode gets no kv_transfer_params at all and prefills by itself:
// an incomplete object would make it act as a prefill instance (vLLM nixl/base_scheduler.py).
func (s *turns) prefill(ctx context.Context, t *turn, p *pick.Pair, plan upstream.Plan, h *reuse.Claim) (handed, error) {
	engine := p.Prefill.Engine()
	found, ok := s.finds(p, h)
	if !ok {
		h.Abandon(record.ReasonQuarantined)
		return handed{}, idEchoFailed(engine, true)
	}
	leg := s.prefillLeg(t, p, plan, found)
	size := leg.Body.Len()
	limited, cancel := s.prefillLimit(ctx, p.Prefill, size, h)
	defer cancel()

	t.retry.last.ticket, t.retry.last.release, h.LegSent = h.Ticket != nil, h.Piggyback != nil, true
	h.Sent()
	sent := t.record.Sent(&leg, p.Prefill.ID())
	t.proving.IDs.Learn(ctx)
	began := time.Now()
	answer, err := s.deps.Legs.Prefill(limited, leg)
	took := time.Since(began)
	sent.Answered(took, err)
	foreign := err == nil && p.Prefill.Engine().AnswerIDs.Foreign(leg.RequestID, answer.ID)
	if foreign {
		answer.PromptIDs = nil // they belong to another prompt
	}
	t.proving.IDs.Rendered(answer.PromptIDs)
	if err != nil {
		if err = s.prefillFailed(t, engine, h, err, began); err != nil {
			return handed{}, err
		}
		t.proving.IDs.Lost()
		t.record.Alone(record.WhyFailed)
		return handed{}, nil
	}
	if foreign {
		s.deps.Legs.Close()
		err = &upstream.LegError{Role: upstream.RolePrefill, Instance: engine.Name, Kind: upstream.Broken, Sent: true, Err: upstream.ErrForeign}
		blame(engine, err, false)
		return handed{}, err
	}
	blame(engine, nil, false)
	s.ratios.Learn(&t.Request, answer.PromptTokens)
	h.Conclude(pairs.Answered)
	if h.Ticket == nil {
		p.Prefill.Engine().Speed.LearnBody(size, took)
	}
	if err := s.checkIDEcho(t.proving.IDs, p.Prefill, found, answer.PromptIDs, t.record.ID()); err != nil {
		return handed{}, err
	}
	s.indexPrompt(t, p, t.proving.IDs.Prompt())
	handover, err := plan.Handover(answer)
	switch {
	case err != nil && t.routing.PrefillFailure == PrefillError:
		return handed{}, &upstream.LegError{Role: upstream.RolePrefill, Instance: engine.Name, Kind: upstream.Garbage, Sent: true, Err: err}
	case err != nil:
		s.cfg.Logger.Error("prefill's hand-over can't be used; decode prefills by itself",
			"turn", t.record.ID(), "prefill", engine.Name, "error", err)
		t.record.Alone(record.WhyFailed)
		return handed{}, nil
	case handover == nil:
		t.record.Alone(record.WhyConnector)
		return handed{}, nil
	}
	cached := h.Answered(p.Prefill, found, handover, answer.PromptTokens)
	learnSpeed(p.Prefill, answer, handover.Cached, &t.Length, h, took)
	return handed{
		Handover: handover, from: p.Prefill, until: time.Now().Add(s.cfg.HandoverBudget), tokens: answer.PromptTokens,
		lineage: s.lineages.Of(found), prefilled: cached,
	}, nil
}

// checkIDEcho compares the ids that prefill reports to have computed with those that it was sent. If they differ, the incarnation is
// quarantined in the name of this turn, and the error says so.
func (s *turns) checkIDEcho(ids *proof.IDs, prefill *fleet.Incarnation, found lineage.Space, computed []byte, turn string) error {
	if err := ids.CheckEcho(computed); err != nil {
		s.lineages.Caught(prefill, found, turn)
		return idEchoFailed(prefill.Engine(), true)
	}
	if ids.Wanted() && ids.ForPrefill() != nil {
		s.lineages.Good(found)
	}
	return nil
}

// learnSpeed tells the fleet how fast prefill computed. The number of computed tokens is certain only if prefill reports how many it took
// from caches. Ejecting a slow engine needs that certainty; for picks an estimate is enough. length is that of the prompt.
func learnSpeed(prefill *fleet.Incarnation, answer upstream.PrefillAnswer, cached int, length *body.PromptLength, h *reuse.Claim, took time.Duration) {
	tokens := answer.PromptTokens
	if h.Ticket == nil && cached >= 0 {
		prefill.Engine().Health.Took(tokens-cached, took)
	}
	if tokens == 0 {
		tokens = length.Whole.Tokens(request.UsualRatio)
	}
	if cached < 0 {
		cached = h.Offer.Tokens
	}
	prefill.Engine().Speed.LearnLeg(tokens-cached, took)
}

// idEchoFailed is the failure of a leg to an engine that does not compute the ids that it is sent.
func idEchoFailed(engine *fleet.Engine, sent bool) *upstream.LegError {
	return &upstream.LegError{Role: upstream.RolePrefill, Instance: engine.Name, Kind: upstream.IDEcho, Sent: sent, Err: proof.ErrIDs}
}

// finds returns the state of prefill's cache that the leg will find, and records that the ticket brings KV into it. ok is false if the
// ticket's KV is in doubt by now. A leg with a salt of its own finds an empty cache.
func (s *turns) finds(p *pick.Pair, h *reuse.Claim) (found lineage.Space, ok bool) {
	switch {
	case p.Salt != "":
		return found, true
	case h.Ticket == nil:
		return s.lineages.At(p.Prefill), true
	}
	return s.lineages.Enter(p.Prefill, h.Ticket.Lineage)
}

// prefillLeg makes the prefill leg.
func (s *turns) prefillLeg(t *turn, p *pick.Pair, plan upstream.Plan, found lineage.Space) upstream.Leg {
	return t.leg(p.Prefill, plan.Prefill, t.body.PrefillBody(body.PrefillEdit{
		Members: plan.Prefill.Members, CacheSalt: t.cacheSalt(p, found), ReturnTokenIDs: t.proving.IDs.Wanted(), PromptIDs: t.proving.IDs.ForPrefill(),
		AnswerID: t.answerID(plan.Prefill),
	}))
}

// leg makes a leg that sends a body to an engine.
func (t *turn) leg(to *fleet.Incarnation, plan upstream.LegPlan, body rawjson.Pieces) upstream.Leg {
	id := plan.RequestID
	if id == "" {
		id = t.legID
	}
	return upstream.Leg{
		Instance: to.Engine().Instance(), API: plan.API, Body: body, RequestID: id, Rank: plan.Rank, Authorization: t.Authorization,
	}
}

// prefillLimit sets the time limit of the leg. A leg that carries a ticket gets less time: an engine that never answers tickets must not
// cost a client the whole limit, and no engine may read blocks that decode has freed.
func (s *turns) prefillLimit(ctx context.Context, prefill *fleet.Incarnation, size int, h *reuse.Claim) (context.Context, context.CancelFunc) {
	limit, cause := s.cfg.PrefillTimeout, upstream.ErrPrefillTimeout
	if h.Ticket != nil || h.Piggyback != nil {
		if trial := s.cfg.ReuseTrialTimeout + prefill.Engine().Speed.Expect(size); trial < limit {
			limit, cause = trial, upstream.ErrReuseTimeout
		}
	}
	if h.Ticket != nil {
		if left := pins.UntilFreed(h.Ticket.Deadline); left < limit {
			limit, cause = left, upstream.ErrTicketEnded
		}
	}
	return context.WithTimeoutCause(ctx, limit, cause)
}

// prefillFailed records what a failure says about the ticket and the engine. It returns nil if prefill answered with a good status and an
// unreadable body: the turn then goes on with decode alone.
func (s *turns) prefillFailed(t *turn, engine *fleet.Engine, h *reuse.Claim, err error, began time.Time) error {
	var leg *upstream.LegError
	if !errors.As(err, &leg) {
		return err
	}
	t.retry.last.blamePrefill(engine, err, began)
	if leg.Kind == upstream.Garbage && t.routing.PrefillFailure != PrefillError {
		s.cfg.Logger.Error("prefill's answer can't be read; decode prefills by itself", "prefill", engine.Name, "error", err)
		return nil
	}
	h.LegSent = leg.Sent
	h.Failed(leg)
	if h.Piggyback != nil {
		h.Piggyback.Failed(leg)
		h.Piggyback = nil
	}
	return err
}
