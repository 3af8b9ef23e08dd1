package proof

import (
	"context"
	"time"

	"carryover/sse/rawjson"
	"carryover/upstream/fleet/facts"
)

// Learn tokenises the prompt while prefill computes it, if nothing is known about its shape. The result is compared beside the turn with what prefill
// renders ([IDs.CheckEcho]); the turn waits for neither.
func (k *IDs) Learn(ctx context.Context) {
	if !k.Wanted() || k.sent {
		return
	}
	t := k.turn
	if t.shape == "" || t.prefill.Parity.Of(t.req.Model, t.shape) != facts.Unknown {
		return
	}
	prefill, req, tokenised := t.prefill, t.req, make(chan []uint32, 1)
	k.tokenised = tokenised
	t.proof.Background("parity", t.id, func() {
		defer close(tokenised)
		prompt, _ := prefill.Prompts.ReadSoon(ctx, req, t.authorization) // no ids if that fails
		tokenised <- prompt.IDs
	})
}

// rendered passes the ids that prefill rendered, nil if unknown, to the comparison with /tokenize.
func (k *IDs) rendered(computed []byte) {
	if k == nil || k.tokenised == nil || computed == nil {
		return
	}
	t := k.turn
	id, prefill, model, tokenised, learnt := t.id, t.prefill, t.req.Model, k.tokenised, make(chan struct{})
	k.learnt = learnt
	t.proof.Background("parity", id, func() {
		defer close(learnt)
		ids := <-tokenised
		if ids == nil {
			return
		}
		equal := rawjson.EqualIDs(computed, ids)
		if prefill.Parity.Learn(t.account, model, t.shape, equal) == facts.No && !equal {
			t.proof.Logger.Warn("tokenize differs from what prefill renders; requests of this shape reuse nothing",
				"turn", id, "prefill", prefill.Engine().Name, "shape", t.shape)
		}
	})
}

// learntWithin bounds the wait of Learnt. Only the first answer of a shape waits, and /tokenize has had the time of both legs.
const learntWithin = time.Second

// Learnt waits until the prompt has been compared with /tokenize, so that a turn that follows at once finds the result.
func (k *IDs) Learnt() {
	if k == nil || k.learnt == nil {
		return
	}
	select {
	case <-k.learnt:
	case <-time.After(learntWithin):
	}
}
