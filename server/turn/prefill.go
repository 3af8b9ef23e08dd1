package turn

import (
	"cmp"
	"context"
	"errors"
	"time"

	"carryover/convcache"
	"carryover/server/pins"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/server/reuse"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
	"carryover/upstream/fleet/prefixindex"
)

// handed is what prefill hands to decode.
type handed struct {
	*upstream.Handover                    // nil if decode prefills by itself
	from               *fleet.Incarnation // the incarnation of prefill that has the KV
	until              time.Time          // end of the hand-over budget
	together           bool               // prefill's leg runs at the same time as decode's
	arrived            bool               // the KV is at decode already, where no lease ends
	bound              bool               // only this attempt's decode instance can take the KV

	rescue func() []body.Member // as in upstream.Handover; nil if there is nothing to take
	left   bool                 // decode's leg for the client takes nothing of it

	prefilled []convcache.Prefilled // how many tokens of the prompt prefix caches hold now
}

// handed returns a hand-over of prefill. The hand-over budget begins.
func (a *attempt) handed(h *upstream.Handover) handed {
	return handed{
		Handover: h, from: a.pair.Prefill, until: time.Now().Add(a.cfg.HandoverBudget), bound: h.Bound, rescue: h.Rescue, left: h.Left,
	}
}

// prefillLeg is a prefill leg, which run sends, and what its engine has answered.
type prefillLeg struct {
	*legRunner
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

// newPrefillLeg makes the prefill leg of an attempt, which is about to be sent.
func (a *attempt) newPrefillLeg(plan upstream.Plan) *prefillLeg {
	p := &prefillLeg{legRunner: a.legRunner, plan: plan, Leg: a.leg(a.pair.Prefill, plan.Prefill, a.Body.PrefillBody(body.PrefillEdit{
		Members: plan.Prefill.Members, CacheSalt: a.cacheSalt(a.pair.Decode), ReturnTokenIDs: a.proving.IDs.Wanted(),
		PromptIDs: a.proving.IDs.ForPrefill(), AnswerID: a.answerID(),
	}))}
	p.limit, p.cause = a.prefillLimit(a.Request.Length.Whole.Tokens(request.UsualRatio))
	a.tried.ticket, a.tried.release = a.claim.Ticket != nil, a.claim.Piggyback != nil
	a.claim.Sent()
	p.sent = a.Record.Sent(&p.Leg, a.pair.Prefill.ID())
	return p
}

// run sends the leg and waits for its answer. It touches nothing of the turn.
func (p *prefillLeg) run(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.limit, p.cause)
	defer cancel()
	leg := p.Leg
	p.Body, p.began = nil, time.Now() // the body is freed as soon as it is written
	p.answer, p.err = p.deps.Legs.Prefill(ctx, leg)
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
	leg := a.newPrefillLeg(plan)
	a.proving.IDs.Learn(ctx)
	leg.run(ctx)
	return leg.conclude(a)
}

// conclude notes how the leg has ended, and returns what it hands over. A leg that has failed may still have sent KV.
func (p *prefillLeg) conclude(a *attempt) (handed, error) {
	engine, answer, err := a.pair.Prefill.Engine(), p.answer, p.err
	p.sent.Answered(p.took, err)
	lost := handed{from: a.pair.Prefill, bound: true, rescue: p.plan.Lost, left: true}
	if err == nil && engine.AnswerIDs.Foreign(p.RequestID, answer.ID) {
		a.proving.IDs.Rendered(nil) // the answer's ids belong to another prompt
		a.deps.Legs.Close()
		err = &upstream.LegError{Role: upstream.RolePrefill, Instance: engine.Name, Kind: upstream.Broken, Sent: true, Err: upstream.ErrForeign}
		Blame(engine, err, false)
		return handed{}, err
	}
	a.proving.IDs.Rendered(answer.PromptIDs)
	if err != nil {
		if !mayArrive(err) {
			lost = handed{}
		}
		if err = a.prefillFailed(engine, err, p.began); err != nil {
			return lost, err
		}
		a.proving.IDs.Lost()
		a.Record.Alone(record.WhyFailed)
		return lost, nil
	}
	Blame(engine, nil, false)
	a.deps.Ratios.Learn(a.Request, answer.PromptTokens)
	a.claim.Conclude(pairs.Answered)
	a.doubts.without(upstream.RolePrefill)
	if err := a.checkIDEcho(answer.PromptIDs); err != nil {
		return handed{}, err
	}
	a.indexPrompt(a.proving.IDs.Prompt())
	switch {
	case p.unusable != nil && a.PrefillError:
		return lost, &upstream.LegError{Role: upstream.RolePrefill, Instance: engine.Name, Kind: upstream.Garbage, Sent: true, Err: p.unusable}
	case p.unusable != nil:
		a.cfg.Logger.Error("prefill's hand-over can't be used; decode prefills by itself",
			"turn", a.Record.ID(), "prefill", engine.Name, "error", p.unusable)
		a.Record.Alone(record.WhyFailed)
		return lost, nil
	case p.handover == nil:
		a.Record.Alone(record.WhyConnector)
		return lost, nil
	}
	h := a.handed(p.handover)
	h.prefilled = a.claim.Answered(a.pair.Prefill, p.handover, answer.PromptTokens)
	learnSpeed(a.pair.Prefill, answer, p.handover.Cached, &a.Request.Length, a.claim, p.took)
	return h, nil
}

// mayArrive reports whether an engine may have begun to send KV although its leg failed with this error: the leg was sent, and the engine has
// not refused it.
func mayArrive(err error) bool {
	var leg *upstream.LegError
	return errors.As(err, &leg) && leg.Sent && leg.Kind != upstream.Status
}

// checkIDEcho compares the ids that prefill reports to have computed with those that it was sent. If they differ, the incarnation is
// quarantined, and the error says so.
func (a *attempt) checkIDEcho(computed []byte) error {
	if err := a.proving.IDs.CheckEcho(computed); err != nil {
		a.deps.Epoch.Caught(a.pair.Prefill, a.epoch, a.Record.ID())
		return idEchoFailed(a.pair.Prefill.Engine(), true)
	}
	return nil
}

// learnSpeed tells the fleet how fast prefill computed. The number of computed tokens is certain only if prefill reports how many it took
// from caches. Ejecting a slow engine needs that certainty; for picks an estimate is enough. length is that of the prompt.
func learnSpeed(prefill *fleet.Incarnation, answer upstream.PrefillAnswer, cached int, length *body.PromptLength, h *reuse.Claim, took time.Duration) {
	tokens := answer.PromptTokens
	certain := h.Ticket == nil && cached >= 0 && tokens > 0
	if tokens == 0 {
		tokens = length.Whole.Tokens(request.UsualRatio)
	}
	if cached < 0 {
		cached = h.Offer.Tokens
	}
	prefill.Engine().LearnPrefill(tokens-cached, took, certain)
}

// idEchoFailed is the failure of a leg to an engine that does not compute the ids that it is sent.
func idEchoFailed(engine *fleet.Engine, sent bool) *upstream.LegError {
	return &upstream.LegError{Role: upstream.RolePrefill, Instance: engine.Name, Kind: upstream.IDEcho, Sent: sent, Err: proof.ErrIDs}
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
	engine := a.pair.Prefill.Engine()
	limit, cause = grown(a.cfg.PrefillTimeout, engine.Expects(0)), upstream.ErrPrefillTimeout
	if a.claim.Ticket != nil || a.claim.Piggyback != nil {
		if trial := a.cfg.ReuseTrialTimeout + engine.Expects(tokens); trial < limit {
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

// prefillFailed records what a failure says about the ticket and the engine. It returns nil if prefill answered with a good status and an
// unreadable body: the turn then goes on with decode alone.
func (a *attempt) prefillFailed(engine *fleet.Engine, err error, began time.Time) error {
	var leg *upstream.LegError
	if !errors.As(err, &leg) {
		return err
	}
	own, unread := a.tried.caused(leg), leg.Kind == upstream.Garbage && !a.PrefillError
	if !unread {
		a.doubts.carried(leg, a.claim.Failed(leg))
	}
	a.doubts.failed(engine, err)
	blamePrefill(engine, err, own, began)
	if unread {
		a.cfg.Logger.Error("prefill's answer can't be read; decode prefills by itself", "prefill", engine.Name, "error", err)
		return nil
	}
	return err
}

// indexPrompt tells the fleet the token ids of the prompt that the attempt's prefill has computed, so that the next prompt with the same
// beginning is sent to the instance that holds its KV.
func (a *attempt) indexPrompt(ids []uint32) {
	if len(ids) == 0 || len(a.Chain) == 0 {
		return
	}
	a.deps.Fleet.Prefixes.IndexPrompt(prefixindex.ComputedPrompt{
		Chain: a.Chain, Bytes: a.Body.Prompt().Bytes(), IDs: ids, BlockSize: a.pair.Prefill.BlockSize(), Model: a.Request.Model,
		Salt: cmp.Or(a.cacheSalt(a.pair.Decode), a.ownSalt()),
	})
}
