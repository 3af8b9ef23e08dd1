package server

import (
	"context"
	"sync"

	"carryover/sse/rawjson"
	"carryover/upstream"
)

// parity is where two answers about one prompt meet: the ids that /tokenize makes of it, and those that prefill rendered
// by itself. The one that comes second is compared with the first, so that a turn waits for neither.
type parity struct {
	compare func(rendered []byte, tokenised []uint32)
	learnt  chan struct{} // closed when that is done, or can't be

	mu        sync.Mutex // guards the rest
	rendered  []byte
	tokenised []uint32
	ended     bool // learnt is closed
}

// askParity has the prompt tokenised while prefill computes it, for a shape whose
// parity is not known yet. It returns nil for all others.
func (s *Server) askParity(ctx context.Context, t *turn, p *pair) *parity {
	k := &t.tokens
	start := p.starts.prefill.Incarnation
	if !k.wanted || k.sent || t.shape == "" || s.deps.Parity.Known(p.prefill, start, t.model, t.shape) != upstream.Unknown {
		return nil
	}
	id, instance, model, shape := t.id, p.prefill, t.model, t.shape
	asked := &parity{learnt: make(chan struct{}), compare: func(rendered []byte, tokenised []uint32) {
		equal := rawjson.EqualIDs(rendered, tokenised)
		if s.deps.Parity.Learn(instance, start, model, shape, equal) == upstream.Barred && !equal {
			s.cfg.Logger.Warn("tokenize differs from what prefill renders; requests of this shape reuse nothing",
				"turn", id, "prefill", instance.Name, "shape", shape)
		}
	}}
	req, authorization := t.req, t.authorization
	s.detached.Go(func() {
		defer s.survive("parity", id)
		ids, err := s.deps.Tokenizer.Tokenize(ctx, instance, req, authorization)
		if err != nil {
			ids = nil
		}
		asked.meet(nil, ids)
	})
	return asked
}

// meet brings what prefill rendered, or what /tokenize made of the prompt; both nil says that one of them failed.
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

// await gives /tokenize until ctx ends to be there, so that a next turn that follows at once finds what was learnt.
func (p *parity) await(ctx context.Context) {
	if p == nil {
		return
	}
	select {
	case <-p.learnt:
	case <-ctx.Done():
	}
}
