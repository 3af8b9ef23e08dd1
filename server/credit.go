package server

import (
	"time"

	"carryover/convcache"
	"carryover/server/lineage"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// had returns what the prefix caches of prefill instances hold of the turn's prompt without any ticket, because earlier prompts of its
// conversation were sent there. compared says that the proof has run and can tell how many tokens the prompt shares with a branch. A
// conversation that was handed back is not compared here: prefill compares tokens itself, and finds only those that are equal.
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

// among adds to had what a branch knows of caches. same returns how many of the branch's tokens the prompt begins with; no more are
// counted.
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

// worth records how much work was saved, once prefill has answered.
func (s *turns) worth(t *turn, prefill *fleet.Incarnation, found lineage.Space, h *claim, handover *upstream.Handover) {
	reuse := t.record.Reuse()
	reuse.Cached = handover.Cached
	t.record.Reuses(reuse)
	same := prefill.PrefixCache.AnsweredAs(handover.EngineID)
	s.finder.foundByEngine(t, prefill, h, same)
	if !same { // prefill was restarted, and its cache is new
		h.had = nil
	}
	t.credit(prefill, t.own(prefill, found, h.had))
}

// own returns how many tokens of the prompt prefill's cache held apart from what was reused: tokens of the conversation's earlier prompts
// that went to this instance, or the tokens that all prompts share. vLLM caches whole blocks only.
func (t *turn) own(prefill *fleet.Incarnation, found lineage.Space, had []convcache.Prefilled) int {
	in, space := found.Cache()
	tokens := convcache.PrefilledIn(had, in, space)
	if size := prefill.BlockSize(); size > 0 {
		tokens -= tokens % size
	}
	return max(tokens, t.sharedPrefixTokens())
}

// credit records how many tokens prefill did not compute because of reuse: the tokens that it found beyond its own, at most as many as a
// ticket offered or as were handed back to it. The number of cached tokens that prefill reports includes both kinds. If prefill reports
// none, all offered tokens beyond its own are counted.
func (t *turn) credit(prefill *fleet.Incarnation, own int) {
	r := t.record.Reuse()
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
	t.record.Reuses(r)
}

// handedBackTo returns how many tokens of the conversation were handed back to an incarnation of prefill.
func (t *turn) handedBackTo(prefill *fleet.Incarnation) (tokens int) {
	for i := range t.notes {
		if n := &t.notes[i]; n.Prefill.Instance == prefill.Engine().Name && n.Prefill.Incarnation == prefill.ID() {
			tokens = max(tokens, n.Tokens)
		}
	}
	return tokens
}

// leaves returns what caches hold of the turn's prompt without any ticket, after prefill has computed or read it. If the conversation was
// handed back, other caches are counted only up to the number of tokens that this prefill found, because prefill compares tokens and
// nothing else did.
func (t *turn) leaves(prefill *fleet.Incarnation, found lineage.Space, h *claim, prompt int) (has []convcache.Prefilled) {
	has = among(nil, h.had, func() int {
		if t.allHandedBack() {
			return t.record.Reuse().Cached
		}
		return prompt
	})
	if in, space := found.Cache(); in != 0 && prompt > 0 && prefill.Known() && prefill.PrefixCache.On() != facts.No {
		has = convcache.AddPrefilled(has, convcache.Prefilled{Incarnation: in, Space: space, Tokens: prompt})
	}
	return has
}
