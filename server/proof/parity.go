package proof

import (
	"context"

	"carryover/sse/rawjson"
	"carryover/upstream/fleet/facts"
)

// Learn has the prompt tokenised while prefill computes it, if nothing is known about its shape. What /tokenize returns is compared with what
// prefill itself renders ([IDs.Rendered]) beside the turn, which waits for neither.
func (k *IDs) Learn(ctx context.Context) {
	if !k.Wanted() || k.sent {
		return
	}
	a, req, shape := k.turn.attempt, k.turn.req, k.turn.shape
	if shape == "" || a.Prefill.Parity.Of(req.Model(), shape) != facts.Unknown {
		return
	}
	tokenised := make(chan []uint32, 1)
	k.tokenised = tokenised
	a.Background(func() {
		defer close(tokenised)
		prompt, _ := a.Prefill.Prompts.ReadSoon(ctx, req, a.Authorization) // no ids if that fails
		tokenised <- prompt.IDs
	})
}

// Rendered gives the ids that prefill says it rendered to the comparison with /tokenize; nil means that they are not known.
func (k *IDs) Rendered(computed []byte) {
	if k == nil || k.tokenised == nil || computed == nil {
		return
	}
	a, model, shape, logger := k.turn.attempt, k.turn.req.Model(), k.turn.shape, k.turn.proof.logger
	tokenised, learnt := k.tokenised, make(chan struct{})
	k.learnt = learnt
	a.Background(func() {
		defer close(learnt)
		ids := <-tokenised
		if ids == nil {
			return
		}
		equal := rawjson.EqualIDs(computed, ids)
		if a.Prefill.Parity.Learn(a.Account, model, shape, equal) == facts.No && !equal {
			logger.Warn("tokenize differs from what prefill renders; requests of this shape reuse nothing",
				"turn", a.TurnID, "prefill", a.Prefill.Engine().Name, "shape", shape)
		}
	})
}

// Learning reports whether the prompt is compared with /tokenize.
func (k *IDs) Learning() bool { return k != nil && k.learnt != nil }

// Learnt waits for the end of a comparison, at most until ctx ends, so that a turn that follows at once finds the result.
func (k *IDs) Learnt(ctx context.Context) {
	select {
	case <-k.learnt:
	case <-ctx.Done():
	}
}
