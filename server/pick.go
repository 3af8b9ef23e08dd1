package server

import (
	"context"
	"slices"

	"carryover/upstream"
	"carryover/upstream/fleet"
)

// maxDecodeOnly bounds the turns that decode prefills by itself because no
// prefill instance can be reached: a decode instance that does all the work
// serves its open streams more slowly.
const maxDecodeOnly = 16

// pair is the engines of one attempt, each in the start that the attempt was begun with. It is read once: an engine that is restarted
// meanwhile is another start, and what the attempt learns is about this one. prefill is nil when decode prefills by
// itself.
type pair struct {
	prefill, decode *fleet.Start
	barred          bool // the attempt avoids a prefill instance that is barred, or its prefix cache
	onDone          []func()
}

// done ends the attempt for the engines that were picked for it.
func (p *pair) done() {
	for _, done := range p.onDone {
		done()
	}
}

// pick chooses the engines of this attempt and the path: prefill and decode,
// or decode alone for requests that disaggregation can't serve (several choices
// or prompts share one hand-over, vLLM #43509) and while prefill is unreachable or
// barred. Beyond what decode can do alone, a barred prefill serves with a
// cache_salt of the turn's own, so that nothing of its prefix cache is read.
func (s *turns) pick(ctx context.Context, t *turn) (*pair, error) {
	p := &pair{}
	hint := t.hint()
	decode, done, err := s.deps.Fleet.Pick(upstream.RoleDecode, hint, t.tries.excludes)
	if err != nil {
		return nil, t.tries.lastOr(err)
	}
	p.onDone = append(p.onDone, done)
	if _, ok := t.req.Disaggregable(); !ok {
		s.pin(ctx, t, p, nil, decode)
		return p, nil
	}
	prefill := s.pickPrefill(t, p, hint, false)
	if prefill == nil {
		p.barred = slices.ContainsFunc(s.deps.Fleet.Engines(upstream.RolePrefill), (*fleet.Engine).Barred)
		select {
		case s.decodeOnly <- struct{}{}:
			p.onDone = append(p.onDone, func() { <-s.decodeOnly })
			s.pin(ctx, t, p, nil, decode)
			return p, nil
		default:
		}
		if p.barred {
			prefill = s.pickPrefill(t, p, hint, true)
		}
		if prefill == nil {
			p.done()
			return nil, t.tries.lastOr(unavailable("prefill_unavailable", "No prefill engine is available."))
		}
		t.salt = newID()
	}
	s.pin(ctx, t, p, prefill, decode)
	return p, nil
}

// pickPrefill adds a prefill instance to the pair, and returns nil if there is none.
func (s *turns) pickPrefill(t *turn, p *pair, hint fleet.Hint, barred bool) *fleet.Engine {
	if t.tries.gaveUp(upstream.RolePrefill) >= maxDials {
		return nil
	}
	prefill, done, err := s.deps.Fleet.Pick(upstream.RolePrefill, hint, func(e *fleet.Engine) bool {
		return t.tries.excludes(e) || !barred && e.Barred()
	})
	if err != nil {
		return nil
	}
	p.onDone = append(p.onDone, done)
	return prefill
}

// pin finds out which starts the attempt talks to. Only a turn that can use or leave a ticket waits for /metrics, or one whose
// connector has to know the starts. Every
// other takes what was last read: all that comes of it is a release, which engines bear in another start too (measured on
// vLLM 0.32).
func (s *turns) pin(ctx context.Context, t *turn, p *pair, prefill, decode *fleet.Engine) {
	if t.proof == nil && s.deps.Connector.Traits().Introduce == nil || prefill == nil {
		p.decode = decode.Last()
		if prefill != nil {
			p.prefill = prefill.Last()
		}
		return
	}
	p.prefill, p.decode = prefill.Current(ctx), decode.Current(ctx)
}

// hint tells the policies of the turn: its conversation, and which starts of decode hold how much of it.
func (t *turn) hint() fleet.Hint {
	h := fleet.Hint{Key: t.conversation.affinity()}
	for i := range t.branches {
		b := &t.branches[i]
		h.Holds = append(h.Holds, fleet.Holding{Decode: b.Decode, Start: b.Start, Tokens: b.Tokens})
	}
	return h
}
