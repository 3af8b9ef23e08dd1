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
	"carryover/upstream/fleet/pairs"
	"carryover/upstream/fleet/prefixindex"
)

// handed is what prefill hands to decode.
type handed struct {
	upstream.Handover           // its Leg is nil if decode gets nothing, and prefills by itself
	until             time.Time // end of the hand-over budget
	together          bool      // prefill's leg runs at the same time as decode's
	arrived           bool      // the KV is at decode already, where it has no lease
	caches            reuse.Caches
}

type prefillLeg struct {
	upstream.Leg
	plan     upstream.Plan
	sent     *record.Leg
	began    time.Time
	took     time.Duration
	answer   upstream.PrefillAnswer
	handover *upstream.Handover
	unusable error // why the answer makes no hand-over
	err      error
}

// prefillLeg makes the attempt's prefill leg, just before it is sent.
func (a *attempt) prefillLeg(plan upstream.Plan) *prefillLeg {
	ids := a.proof.IDs
	p := &prefillLeg{plan: plan, Leg: a.leg(a.pair.Prefill, plan.Prefill, a.Body.PrefillBody(body.LegEdit{
		Members: plan.Prefill.Members, CacheSalt: a.cacheSalt(a.pair.Decode), ReturnTokenIDs: ids.Wanted(), PromptIDs: ids.ForPrefill(), RequestID: a.legID,
	}))}
	a.failed.added = a.claim.Carries()
	a.claim.Sent()
	p.sent = a.record.Sent(&p.Leg, a.pair.Prefill.ID())
	return p
}

// send sends the leg, waits for its answer and gives back its slot. It changes nothing else of the attempt, because it may run beside decode's leg.
func (a *attempt) send(ctx context.Context, p *prefillLeg) {
	defer a.pair.Prefilled()
	limit, cause := a.prefillLimit()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, cause)
	defer cancel()
	leg := p.Leg
	p.Body, p.began = nil, time.Now() // the body is freed as soon as it is written
	p.answer, p.err = a.h.deps.Legs.Prefill(ctx, leg)
	p.took = time.Since(p.began)
	if p.err == nil {
		if p.handover, p.unusable = p.plan.Handover(p.answer); p.unusable != nil && p.plan.Together != nil {
			p.err = a.pair.Prefill.LegError(upstream.KVLoad, p.unusable) // decode has got its hand-over already
		}
	}
	p.sent.Answered(p.err)
}

// conclude notes how the prefill leg has ended, and returns what it hands over. If the status is good but the answer can't be used, the turn goes
// on with decode alone, unless the operator wants errors. Decode then gets no kv_transfer_params at all: an incomplete object would make it act as a
// prefill instance (vLLM nixl/base_scheduler.py).
func (a *attempt) conclude(p *prefillLeg) (handed, error) {
	prefill, ids, answer := a.pair.Prefill, a.proof.IDs, p.answer
	engine := prefill.Engine()
	lost := handed{Handover: upstream.Handover{Bound: true, Rescue: p.plan.Lost, Left: true}} // unless more is known
	if leg := upstream.LegOf(p.err); leg != nil {
		a.doubts.carried(leg, a.claim.Doubted(leg))
		a.doubts.failed(engine, leg)
		if engine.Ended(leg, a.failed.caused(leg)); errors.Is(leg, upstream.ErrPrefillTimeout) {
			// If the engine has answered no other leg since this one began, it leaves the rotation at once. Its health check does not matter: an LMCache
			// sender whose receiver does not listen answers no leg any more, and its /health stays 200 (measured, 0.5.6).
			engine.Health.Unanswered(p.began)
		}
		switch {
		case !leg.Sent, leg.Kind == upstream.Status: // the engine has not begun to send KV
			return handed{}, leg
		case leg.Kind != upstream.Garbage, a.PrefillError:
			return lost, leg
		}
		ids.Lost()
		p.unusable = leg
	} else {
		engine.Ended(nil, false)
		a.h.deps.Ratios.Learn(a.Request, answer.PromptTokens)
		a.claim.Conclude(pairs.Answered)
		a.doubts.settle(upstream.RolePrefill, false)
		if ids.CheckEcho(answer.PromptIDs) != nil { // the incarnation does not compute the ids that it is sent
			a.h.deps.Epoch.Caught(prefill, a.epoch, a.record.ID())
			return lost, prefill.LegError(upstream.IDEcho, proof.ErrIDs)
		}
		a.indexPrompt(ids.Prompt())
	}
	switch {
	case p.handover != nil:
	case p.unusable == nil:
		a.record.Takes(record.WhyConnector, a.pair.Uncached)
		return lost, nil
	case a.PrefillError:
		return lost, prefill.LegError(upstream.Garbage, p.unusable)
	default:
		a.h.log(a.record).Error("prefill's answer can't be used; decode prefills by itself", "prefill", engine.Name, "error", p.unusable)
		a.record.Takes(record.WhyFailed, a.pair.Uncached)
		return lost, nil
	}
	reused := a.reuses(reuse.Tell(a.proof, p.handover, answer.PromptTokens))
	prefill.PrefixCache.HandedBackFound(reused.Kept)
	// The number of computed tokens is certain only if prefill reports how many it took from caches. Ejecting a slow engine needs that
	// certainty; for picks an estimate is enough.
	cached := p.handover.Cached
	if cached < 0 {
		cached = a.claim.Offer.Tokens
	}
	tokens := cmp.Or(answer.PromptTokens, a.Request.Length.Whole.Tokens(request.UsualRatio))
	engine.LearnPrefill(tokens-cached, p.took, a.claim.Ticket == nil && p.handover.Cached >= 0 && answer.PromptTokens > 0)
	return handed{Handover: *p.handover, until: time.Now().Add(a.h.cfg.HandoverBudget), caches: reused.Caches}, nil
}

// grown returns how long prefill may take: as long as the operator has set, or three times as long as expected if that is more. The limit grows
// tenfold at most, so that an engine that hangs is found out even if the expectation is wrong.
func grown(set, expected time.Duration) time.Duration {
	return max(set, min(3*expected, 10*set))
}

// prefillLimit returns the leg's time limit. A leg that carries a ticket gets less time: an engine that never answers tickets must not cost a
// client the whole limit, and no engine may read blocks that decode has freed. There is still time to compute the whole prompt, which may be
// needed.
func (a *attempt) prefillLimit() (limit time.Duration, cause error) {
	engine, ticket := a.pair.Prefill.Engine(), a.claim.Ticket
	limit, cause = grown(a.h.cfg.PrefillTimeout, engine.Expects(0)), upstream.ErrPrefillTimeout
	if trial := a.h.cfg.ReuseTrialTimeout + engine.Expects(a.Request.Length.Whole.Tokens(request.UsualRatio)); a.failed.added && trial < limit {
		limit, cause = trial, upstream.ErrReuseTimeout
	}
	if ticket != nil {
		if left := pins.UntilFreed(ticket.Deadline); left < limit {
			limit, cause = left, upstream.ErrTicketEnded
		}
	}
	return limit, cause
}

// indexPrompt tells the fleet the ids of the prompt that prefill computes. The next prompt with the same beginning then goes to the instance that
// holds its KV.
func (a *attempt) indexPrompt(ids []uint32) {
	a.h.deps.Fleet.Prefixes.IndexPrompt(prefixindex.ComputedPrompt{
		Chain: a.Chain, Bytes: a.Body.Prompt().Bytes(), IDs: ids, BlockSize: a.pair.Prefill.BlockSize(), Model: a.Request.Model,
		Salt: cmp.Or(a.cacheSalt(a.pair.Decode), a.proof.Salt),
	})
}
