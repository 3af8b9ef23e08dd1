package turn

import (
	"cmp"
	"context"
	"errors"
	"time"

	"carryover/server/pins"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/server/reuse"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/fleet/pairs"
	"carryover/upstream/fleet/prefixindex"
)

// handed is what prefill hands to decode.
type handed struct {
	upstream.Handover                    // its Leg is nil if decode gets nothing, and prefills by itself
	from              *fleet.Incarnation // the incarnation of prefill that has the KV
	until             time.Time          // end of the hand-over budget
	together          bool               // prefill's leg runs at the same time as decode's
	arrived           bool               // the KV is at decode already, where no lease ends
	caches            reuse.Caches
}

// handed returns a hand-over of prefill. The hand-over budget begins.
func (a *attempt) handed(h *upstream.Handover) handed {
	return handed{Handover: *h, from: a.pair.Prefill, until: time.Now().Add(a.h.cfg.HandoverBudget)}
}

// prefillLeg is a prefill leg, which run sends, and what its engine has answered.
type prefillLeg struct {
	upstream.Leg
	plan  upstream.Plan
	limit time.Duration
	cause error // with which the limit ends the leg
	sent  record.SentLeg

	began    time.Time
	took     time.Duration
	answer   upstream.PrefillAnswer
	handover *upstream.Handover
	unusable error // why the answer makes no hand-over
	err      error
}

// prefillLeg makes the prefill leg of an attempt, which is about to be sent.
func (a *attempt) prefillLeg(plan upstream.Plan) *prefillLeg {
	ids := a.proof.IDs
	p := &prefillLeg{plan: plan, Leg: a.leg(a.pair.Prefill, plan.Prefill, a.Body.PrefillBody(body.PrefillEdit{
		Members: plan.Prefill.Members, CacheSalt: a.cacheSalt(a.pair.Decode), ReturnTokenIDs: ids.Wanted(), PromptIDs: ids.ForPrefill(), AnswerID: a.answerID(),
	}))}
	p.limit, p.cause = a.prefillLimit(a.Request.Length.Whole.Tokens(request.UsualRatio))
	a.failed.ticket, a.failed.added = a.claim.Ticket != nil, a.claim.Ticket != nil || a.claim.Piggyback != nil
	a.claim.Sent()
	p.sent = a.Record.Sent(&p.Leg, a.pair.Prefill.ID())
	return p
}

// run sends the leg and waits for its answer. It touches nothing of the turn.
func (p *prefillLeg) run(ctx context.Context, legs Legs) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.limit, p.cause)
	defer cancel()
	leg := p.Leg
	p.Body, p.began = nil, time.Now() // the body is freed as soon as it is written
	p.answer, p.err = legs.Prefill(ctx, leg)
	p.took = time.Since(p.began)
	if p.err != nil {
		return
	}
	if p.handover, p.unusable = p.plan.Handover(p.answer); p.unusable != nil && p.plan.Together != nil {
		p.err = &upstream.LegError{Role: upstream.RolePrefill, Instance: leg.Instance.Name, Kind: upstream.KVLoad, Sent: true, Err: p.unusable}
	}
}

// prefill runs the prefill leg. If prefill answers no usable hand-over, decode gets no kv_transfer_params at all and prefills by itself:
// an incomplete object would make it act as a prefill instance (vLLM nixl/base_scheduler.py).
func (a *attempt) prefill(ctx context.Context, plan upstream.Plan) (handed, error) {
	defer a.pair.Prefilled()
	leg := a.prefillLeg(plan)
	a.proof.IDs.Learn(ctx)
	leg.run(ctx, a.h.deps.Legs)
	return a.conclude(leg)
}

// conclude notes how a prefill leg has ended, and returns what it hands over. A leg that has failed may still have sent KV.
func (a *attempt) conclude(p *prefillLeg) (handed, error) {
	prefill, ids, answer, err := a.pair.Prefill, a.proof.IDs, p.answer, p.err
	engine := prefill.Engine()
	p.sent.Answered(p.took, err)
	lost := handed{Handover: upstream.Handover{Bound: true, Rescue: p.plan.Lost, Left: true}, from: prefill}
	if err == nil && engine.AnswerIDs.Foreign(p.RequestID, answer.ID) {
		ids.Rendered(nil) // the answer's ids belong to another prompt
		err = a.h.foreign(engine)
		Blame(engine, err, false)
		return handed{}, err
	}
	ids.Rendered(answer.PromptIDs)
	if err != nil {
		var leg *upstream.LegError
		if !errors.As(err, &leg) || !leg.Sent || leg.Kind == upstream.Status { // else the engine may have begun to send KV
			lost = handed{}
		}
		if err = a.prefillFailed(engine, leg, err, p.began); err == nil {
			ids.Lost()
			a.Record.Alone(record.WhyFailed)
		}
		return lost, err
	}
	Blame(engine, nil, false)
	a.h.deps.Ratios.Learn(a.Request, answer.PromptTokens)
	a.claim.Conclude(pairs.Answered)
	a.doubts.without(upstream.RolePrefill)
	if ids.CheckEcho(answer.PromptIDs) != nil { // the incarnation does not compute the ids that it is sent
		a.h.deps.Epoch.Caught(prefill, a.epoch, a.Record.ID())
		return handed{}, idEchoFailed(engine, true)
	}
	a.indexPrompt(ids.Prompt())
	switch {
	case p.unusable != nil && a.PrefillError:
		return lost, legError(engine, upstream.Garbage, p.unusable)
	case p.unusable != nil:
		a.h.cfg.Logger.Error("prefill's hand-over can't be used; decode prefills by itself",
			"turn", a.Record.ID(), "prefill", engine.Name, "error", p.unusable)
		a.Record.Alone(record.WhyFailed)
		return lost, nil
	case p.handover == nil:
		a.Record.Alone(record.WhyConnector)
		return lost, nil
	}
	h := a.handed(p.handover)
	reused := a.reuses(reuse.Tell(a.proof, p.handover, answer.PromptTokens))
	if reused.Kept != facts.Unknown {
		prefill.PrefixCache.HandedBackFound(reused.Kept == facts.Yes)
	}
	h.caches = reused.Caches
	// The number of computed tokens is certain only if prefill reports how many it took from caches. Ejecting a slow engine needs that
	// certainty; for picks an estimate is enough.
	tokens, cached, ticket := answer.PromptTokens, h.Cached, a.claim.Ticket != nil
	certain := !ticket && cached >= 0 && tokens > 0
	if tokens == 0 {
		tokens = a.Request.Length.Whole.Tokens(request.UsualRatio)
	}
	if cached < 0 && ticket {
		cached = a.claim.Offer.Tokens
	}
	engine.LearnPrefill(tokens-max(0, cached), p.took, certain)
	return h, nil
}

// grown returns how long prefill may take that is expected to take so long: as the operator has set, or three times as long as expected where
// that is more. An engine that hangs must be found out though what it has shown was wrong, so that the limit grows tenfold at most.
func grown(set, expected time.Duration) time.Duration {
	return max(set, min(3*expected, 10*set))
}

// prefillLimit returns the time limit of the leg. A leg that carries a ticket gets less time: an engine that never answers tickets must not
// cost a client the whole limit, and no engine may read blocks that decode has freed. A prompt of so many tokens may have to be computed as a
// whole nevertheless.
func (a *attempt) prefillLimit(tokens int) (limit time.Duration, cause error) {
	engine, cfg := a.pair.Prefill.Engine(), &a.h.cfg
	limit, cause = grown(cfg.PrefillTimeout, engine.Expects(0)), upstream.ErrPrefillTimeout
	if a.claim.Ticket != nil || a.claim.Piggyback != nil {
		if trial := cfg.ReuseTrialTimeout + engine.Expects(tokens); trial < limit {
			limit, cause = trial, upstream.ErrReuseTimeout
		}
	}
	if a.claim.Ticket != nil {
		if left := pins.UntilFreed(a.claim.Ticket.Deadline); left < limit {
			limit, cause = left, upstream.ErrTicketEnded
		}
	}
	return limit, cause
}

// prefillFailed notes what a failure, and the leg's error in it, say about the ticket and the engine. It returns nil if prefill answered
// with a good status and an unreadable body: the turn then goes on with decode alone.
func (a *attempt) prefillFailed(engine *fleet.Engine, leg *upstream.LegError, err error, began time.Time) error {
	if leg == nil {
		return err
	}
	unread := leg.Kind == upstream.Garbage && !a.PrefillError
	if !unread {
		a.doubts.carried(leg, a.claim.Failed(leg))
	}
	a.doubts.failed(engine, leg)
	Blame(engine, leg, a.failed.caused(leg))
	if errors.Is(leg, upstream.ErrPrefillTimeout) {
		// An engine that has let a leg reach its time limit, and has answered no other leg since, leaves the rotation at once, whatever its
		// health check says: an LMCache sender whose receiver does not listen answers no leg any more, and its /health stays 200 (measured, 0.5.6).
		engine.Health.Unanswered(began)
	}
	if unread {
		a.h.cfg.Logger.Error("prefill's answer can't be read; decode prefills by itself", "prefill", engine.Name, "error", err)
		return nil
	}
	return err
}

// idEchoFailed is the failure of a leg to an engine that does not compute the ids that it is sent.
func idEchoFailed(engine *fleet.Engine, sent bool) *upstream.LegError {
	failed := legError(engine, upstream.IDEcho, proof.ErrIDs)
	failed.Sent = sent
	return failed
}

// indexPrompt tells the fleet the token ids of the prompt that the attempt's prefill has computed, so that the next prompt with the same
// beginning is sent to the instance that holds its KV.
func (a *attempt) indexPrompt(ids []uint32) {
	if len(ids) == 0 || len(a.Chain) == 0 {
		return
	}
	a.h.deps.Fleet.Prefixes.IndexPrompt(prefixindex.ComputedPrompt{
		Chain: a.Chain, Bytes: a.Body.Prompt().Bytes(), IDs: ids, BlockSize: a.pair.Prefill.BlockSize(), Model: a.Request.Model,
		Salt: cmp.Or(a.cacheSalt(a.pair.Decode), a.proof.Salt),
	})
}
