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
	tokens             int                // tokens of the prompt that prefill computed, 0 if it does not report them

	prefilled []convcache.Prefilled // how many tokens of the prompt prefix caches hold now
}

// prefill runs the prefill leg. If prefill answers no usable hand-over, decode gets no kv_transfer_params at all and prefills by itself:
// an incomplete object would make it act as a prefill instance (vLLM nixl/base_scheduler.py).
func (a *attempt) prefill(ctx context.Context, plan upstream.Plan) (handed, error) {
	engine := a.pair.Prefill.Engine()
	leg := a.prefillLeg(plan)
	size := leg.Body.Len()
	limited, cancel := a.prefillLimit(ctx, size)
	defer cancel()

	a.tried.ticket, a.tried.release = a.claim.Ticket != nil, a.claim.Piggyback != nil
	a.claim.Sent()
	sent := a.Record.Sent(&leg, a.pair.Prefill.ID())
	a.proving.IDs.Learn(ctx)
	began := time.Now()
	answer, err := a.deps.Legs.Prefill(limited, leg)
	took := time.Since(began)
	sent.Answered(took, err)
	foreign := err == nil && a.pair.Prefill.Engine().AnswerIDs.Foreign(leg.RequestID, answer.ID)
	if foreign {
		answer.PromptIDs = nil // they belong to another prompt
	}
	a.proving.IDs.Rendered(answer.PromptIDs)
	if err != nil {
		if err = a.prefillFailed(engine, err, began); err != nil {
			return handed{}, err
		}
		a.proving.IDs.Lost()
		a.Record.Alone(record.WhyFailed)
		return handed{}, nil
	}
	if foreign {
		a.deps.Legs.Close()
		err = &upstream.LegError{Role: upstream.RolePrefill, Instance: engine.Name, Kind: upstream.Broken, Sent: true, Err: upstream.ErrForeign}
		Blame(engine, err, false)
		return handed{}, err
	}
	Blame(engine, nil, false)
	a.deps.Ratios.Learn(a.Request, answer.PromptTokens)
	a.claim.Conclude(pairs.Answered)
	if a.claim.Ticket == nil {
		a.pair.Prefill.Engine().Speed.LearnBody(size, took)
	}
	if err := a.checkIDEcho(answer.PromptIDs); err != nil {
		return handed{}, err
	}
	a.indexPrompt(a.proving.IDs.Prompt())
	handover, err := plan.Handover(answer)
	switch {
	case err != nil && a.PrefillError:
		return handed{}, &upstream.LegError{Role: upstream.RolePrefill, Instance: engine.Name, Kind: upstream.Garbage, Sent: true, Err: err}
	case err != nil:
		a.cfg.Logger.Error("prefill's hand-over can't be used; decode prefills by itself",
			"turn", a.Record.ID(), "prefill", engine.Name, "error", err)
		a.Record.Alone(record.WhyFailed)
		return handed{}, nil
	case handover == nil:
		a.Record.Alone(record.WhyConnector)
		return handed{}, nil
	}
	cached := a.claim.Answered(a.pair.Prefill, handover, answer.PromptTokens)
	learnSpeed(a.pair.Prefill, answer, handover.Cached, &a.Request.Length, a.claim, took)
	return handed{
		Handover: handover, from: a.pair.Prefill, until: time.Now().Add(a.cfg.HandoverBudget), tokens: answer.PromptTokens,
		prefilled: cached,
	}, nil
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

// prefillLimit sets the time limit of the leg. A leg that carries a ticket gets less time: an engine that never answers tickets must not
// cost a client the whole limit, and no engine may read blocks that decode has freed.
func (a *attempt) prefillLimit(ctx context.Context, size int) (context.Context, context.CancelFunc) {
	limit, cause := a.cfg.PrefillTimeout, upstream.ErrPrefillTimeout
	if a.claim.Ticket != nil || a.claim.Piggyback != nil {
		if trial := a.cfg.ReuseTrialTimeout + a.pair.Prefill.Engine().Speed.Expect(size); trial < limit {
			limit, cause = trial, upstream.ErrReuseTimeout
		}
	}
	if a.claim.Ticket != nil {
		if left := pins.UntilFreed(a.claim.Ticket.Deadline); left < limit {
			limit, cause = left, upstream.ErrTicketEnded
		}
	}
	return context.WithTimeoutCause(ctx, limit, cause)
}

// prefillFailed records what a failure says about the ticket and the engine. It returns nil if prefill answered with a good status and an
// unreadable body: the turn then goes on with decode alone.
func (a *attempt) prefillFailed(engine *fleet.Engine, err error, began time.Time) error {
	var leg *upstream.LegError
	if !errors.As(err, &leg) {
		return err
	}
	a.tried.blamePrefill(engine, err, began)
	if leg.Kind == upstream.Garbage && !a.PrefillError {
		a.cfg.Logger.Error("prefill's answer can't be read; decode prefills by itself", "prefill", engine.Name, "error", err)
		return nil
	}
	a.claim.Failed(leg)
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
