package reuse

import (
	"time"

	"carryover/convcache"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// had returns what the prefix caches of prefill instances hold of the turn's prompt without any ticket, because earlier prompts of its
// conversation were sent there. compared says that the proof has run and can tell how many tokens the prompt shares with a branch. A
// conversation that was handed back is not compared here: prefill compares tokens itself, and finds only those that are equal.
func (p *Proving) had(looked *Lookup, compared bool) (had []convcache.Prefilled) {
	for _, known := range [...][]convcache.KeyedBranch{looked.Branches, looked.Notes} {
		for i := range known {
			had = among(had, known[i].Prefilled, func() int {
				if compared {
					return p.proof.Offer(known[i].Branch).Tokens
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

// Cached records how many tokens of the prompt prefill took from caches, -1 if it does not tell. It does not change the outcome.
func (c *Claim) Cached(tokens int) {
	r := c.of.record.Reuse()
	r.Cached = tokens
	c.of.record.Reuses(r)
}

// Answered records how much work was saved, once an incarnation of prefill has answered with a hand-over. It
// returns what caches hold of a prompt of so many tokens from now on without any ticket.
func (c *Claim) Answered(prefill *fleet.Incarnation, handover *upstream.Handover, prompt int) []convcache.Prefilled {
	c.Cached(handover.Cached)
	same := prefill.PrefixCache.AnsweredAs(handover.EngineID)
	if !same { // prefill was restarted, and its cache is new
		c.had = nil
	}
	own := c.own(prefill)
	c.foundByEngine(prefill, own, same)
	c.credit(prefill, own)
	c.foundByPrefix(prefill, prompt)
	return c.leaves(prefill, prompt)
}

// own returns how many tokens of the prompt prefill's cache held apart from what was reused: tokens of the conversation's earlier prompts
// that went to this instance, or the tokens that all prompts share. vLLM caches whole blocks only.
func (c *Claim) own(prefill *fleet.Incarnation) int {
	tokens := convcache.PrefilledIn(c.had, holderOf(prefill))
	if size := prefill.BlockSize(); size > 0 {
		tokens -= tokens % size
	}
	return max(tokens, c.of.sharedPrefixTokens(c.looked))
}

// credit records how many tokens prefill did not compute because of reuse: the tokens that it found beyond its own, at most as many as a
// ticket offered or as were handed back to it. The number of cached tokens that prefill reports includes both kinds. If prefill reports
// none, all offered tokens beyond its own are counted.
func (c *Claim) credit(prefill *fleet.Incarnation, own int) {
	r := c.of.record.Reuse()
	if !r.Hit {
		return
	}
	most := r.Offered
	if r.Proof == proofEngine {
		most = c.looked.handedBackTo(prefill)
	}
	if r.Cached >= 0 {
		most = min(most, r.Cached)
	}
	r.Read = max(0, most-own)
	r.Saved = prefill.Engine().PerToken() * time.Duration(r.Read)
	c.of.record.Reuses(r)
}

// foundByPrefix records that prefill's own caches had a part of the prompt although the turn is no hit. Caches hold whole blocks, so that less
// than one block is nothing. prompt is the number of the prompt's tokens, 0 if it is not known.
func (c *Claim) foundByPrefix(prefill *fleet.Incarnation, prompt int) {
	r := c.of.record.Reuse()
	found := r.Cached
	if prompt > 0 {
		found = min(found, prompt)
	}
	if !r.Hit && found >= max(1, prefill.BlockSize()) {
		r.Prefix = found
		c.of.record.Reuses(r)
	}
}

// leaves returns what caches hold of the turn's prompt without any ticket, after prefill has computed or read it. If the conversation was
// handed back, other caches are counted only up to the number of tokens that this prefill found, because prefill compares tokens and
// nothing else did.
func (c *Claim) leaves(prefill *fleet.Incarnation, prompt int) (has []convcache.Prefilled) {
	has = among(nil, c.had, func() int {
		if c.looked.AllHandedBack() {
			return c.of.record.Reuse().Cached
		}
		return prompt
	})
	if prompt > 0 && !c.of.pair.Quarantined && prefill.Known() && prefill.PrefixCache.On() != facts.No {
		has = convcache.AddPrefilled(has, convcache.Prefilled{Prefill: holderOf(prefill), Tokens: prompt})
	}
	return has
}
