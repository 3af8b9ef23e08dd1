package proof

import (
	"context"
	"sync"

	"carryover/sse/rawjson"
	"carryover/upstream/fleet/facts"
)

// parity compares two answers about one prompt: the ids that /tokenize returns for it, and the ids that prefill itself rendered. The
// comparison runs when the second of them arrives, so the turn waits for neither.
type parity struct {
	compare func(rendered []byte, tokenised []uint32)
	learnt  chan struct{} // closed when the comparison is done, or has become impossible

	mu        sync.Mutex // guards the rest
	rendered  []byte
	tokenised []uint32
	ended     bool // learnt is closed
}

// askParity has the prompt tokenised in parallel with the prefill leg if nothing is known about its shape. It returns nil otherwise.
func (t *Turn) askParity(ctx context.Context) *parity {
	incarnation, model, shape := t.attempt.Prefill, t.req.Model(), t.shape
	if shape == "" || incarnation.Parity.Of(model, shape) != facts.Unknown {
		return nil
	}
	id, account, logger := t.attempt.TurnID, t.attempt.Account, t.proof.logger
	asked := &parity{learnt: make(chan struct{}), compare: func(rendered []byte, tokenised []uint32) {
		equal := rawjson.EqualIDs(rendered, tokenised)
		if incarnation.Parity.Learn(account, model, shape, equal) == facts.No && !equal {
			logger.Warn("tokenize differs from what prefill renders; requests of this shape reuse nothing",
				"turn", id, "prefill", incarnation.Engine().Name, "shape", shape)
		}
	}}
	req, authorization := t.req, t.attempt.Authorization
	t.attempt.Background(func() {
		prompt, _ := incarnation.Prompts.ReadSoon(ctx, req, authorization) // no ids if that fails
		asked.meet(nil, prompt.IDs)
	})
	return asked
}

// meet takes the ids that prefill rendered, or the ids that /tokenize returned. If both are nil, one of the two failed.
func (p *parity) meet(rendered []byte, tokenised []uint32) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	p.ended = rendered == nil && tokenised == nil
	if rendered != nil {
		p.rendered = rendered
	}
	if tokenised != nil {
		p.tokenised = tokenised
	}
	if p.rendered != nil && p.tokenised != nil {
		p.compare(p.rendered, p.tokenised)
		p.ended = true
	}
	if p.ended {
		p.rendered, p.tokenised = nil, nil
		close(p.learnt)
	}
}
