package server

import (
	"time"

	"carryover/convcache"
	"carryover/server/lineage"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// had is what prefix caches of prefill hold of the turn's prompt by themselves, because prompts of its conversation were sent there before.
// compared says that the proof has looked, and tells how far the prompt begins like a branch. A conversation that was handed back is not
// compared: prefill finds no more of it than is the same.
func (t *turn) had(compared bool) (had []convcache.Prefilled) {
	for _, known := range [...][]convcache.Branch{t.branches, t.notes} {
		for i := range known {
			had = among(had, known[i].Prefilled, func() int {
				if compared {
					return t.proof.Offer(known[i]).Tokens
				}
				return known[i].Tokens
			})
		}
	}
	return had
}

// among adds to had what a branch tells of caches. Only so many tokens of the branch are those of the prompt as same says.
func among(had, others []convcache.Prefilled, same func() int) []convcache.Prefilled {
	if len(others) == 0 {
		return had
	}
	most := same()
	for _, p := range others {
		if p.Tokens = min(p.Tokens, most); p.Tokens > 0 {
			had = convcache.AddPrefilled(had, p)
		}
	}
	return had
}

// worth notes how much prefill was spared, once it has answered.
func (s *turns) worth(t *turn, prefill *fleet.Incarnation, found lineage.Space, h *claim, handover *upstream.Handover) {
	t.record.Reuse.Cached = handover.Cached
	same := prefill.AnsweredAs(handover.EngineID)
	s.finder.foundByEngine(t, prefill, h, same)
	if !same { // it was restarted, and has nothing of before
		h.had = nil
	}
	t.credit(prefill, t.own(prefill, found, h.had))
}

// own is how many tokens of the prompt a cache has had without what was reused: those of the conversation's prompts before that went
// there, or what all prompts have in common. vLLM keeps whole blocks.
func (t *turn) own(prefill *fleet.Incarnation, found lineage.Space, had []convcache.Prefilled) int {
	in, space := found.Cache()
	tokens := convcache.PrefilledIn(had, in, space)
	if size := prefill.BlockSize(); size > 0 {
		tokens -= tokens % size
	}
	return max(tokens, t.sharedPrefixTokens())
}

// credit notes what prefill did not compute because of what was reused: what it found beyond its own, at most what was offered of a
// ticket, or what was handed back to it. What it tells of caches counts both. Where it tells nothing, what was offered beyond its own
// is taken for it.
func (t *turn) credit(prefill *fleet.Incarnation, own int) {
	r := &t.record.Reuse
	if !r.Hit {
		return
	}
	most := r.Offered
	if r.Proof == proofEngine {
		most = t.handedBackTo(prefill)
	}
	if r.Cached >= 0 {
		most = min(most, r.Cached)
	}
	r.Read = max(0, most-own)
	r.Saved = prefill.Engine().PerToken() * time.Duration(r.Read)
}

// handedBackTo is how many tokens were handed back to a start of prefill.
func (t *turn) handedBackTo(prefill *fleet.Incarnation) (tokens int) {
	for i := range t.notes {
		if n := &t.notes[i]; n.Prefill == prefill.Engine().Name && n.PrefillIncarnation == prefill.ID() {
			tokens = max(tokens, n.Tokens)
		}
	}
	return tokens
}

// leaves is what caches hold of the turn's prompt by themselves, once prefill has computed it or read it. What was handed back to others
// is known as far as prefill has found it, which compares tokens.
func (t *turn) leaves(prefill *fleet.Incarnation, found lineage.Space, h *claim, prompt int) (has []convcache.Prefilled) {
	has = among(nil, h.had, func() int {
		if t.allHandedBack() {
			return t.record.Reuse.Cached
		}
		return prompt
	})
	if in, space := found.Cache(); in != 0 && prompt > 0 && prefill.Known() && prefill.CachesPrefixes() != fleet.No {
		has = convcache.AddPrefilled(has, convcache.Prefilled{Incarnation: in, Space: space, Tokens: prompt})
	}
	return has
}
