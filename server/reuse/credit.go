package reuse

import (
	"time"

	"carryover/convcache"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// had returns what the prefix caches of prefill instances hold of the turn's prompt without any ticket, because earlier prompts of its
// conversation were sent there.
func (p *Proving) had(looked *Lookup) (had []convcache.Prefilled) {
	for _, known := range [...][]convcache.KeyedBranch{looked.Branches, looked.Notes} {
		for i := range known {
			had = among(had, known[i].Prefilled, p.same(&known[i]))
		}
	}
	return had
}

// same returns how many of a branch's tokens the prompt begins with, once prefill has told the prompt's ids; all if it does not tell them.
func (p *Proving) same(b *convcache.KeyedBranch) int {
	if len(p.IDs.Prompt()) == 0 {
		return b.Tokens
	}
	return p.proof.Offer(b.Branch).Tokens
}

// among adds to had what a branch knows of caches, at most so many tokens of each.
func among(had, others []convcache.Prefilled, most int) []convcache.Prefilled {
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
	var had []convcache.Prefilled
	if same { // else prefill was restarted, and its cache is new
		had = c.of.had(c.looked)
	}
	own := c.own(prefill, had)
	c.foundByEngine(prefill, own, same)
	c.credit(prefill, own, prompt)
	c.foundByPrefix(prefill, prompt)
	return c.of.leaves(prefill, had, prompt)
}

// own returns how many tokens of the prompt prefill's cache held apart from what was reused: tokens of the conversation's earlier prompts
// that went to this instance, or the tokens that all prompts share. vLLM caches whole blocks only.
func (c *Claim) own(prefill *fleet.Incarnation, had []convcache.Prefilled) int {
	tokens := convcache.PrefilledIn(had, holderOf(prefill))
	if size := prefill.BlockSize(); size > 0 {
		tokens -= tokens % size
	}
	return max(tokens, c.of.sharedPrefixTokens(c.looked))
}

// credit records how many tokens prefill did not compute because of reuse. prompt is the number of the prompt's tokens, 0 if it is not known.
func (c *Claim) credit(prefill *fleet.Incarnation, own, prompt int) {
	r := c.of.record.Reuse()
	if !r.Hit {
		return
	}
	if r.Proof == proofEngine {
		most, whole := c.handedBackTo(prefill)
		r.Read = kept(most, r.Cached, own, prefill.BlockSize())
		r.Reason = empty(r.Read, most, r.Cached, whole, record.ReasonHandedBackEvicted)
		if !whole {
			r.Differs = c.of.differs(c.looked.Notes)
		}
	} else {
		r.Read = read(r.Offered, r.Cached, own)
		replayed := prompt > 0 && r.Cached+max(1, prefill.BlockSize()) >= prompt // it ends within the ticket
		r.Reason = empty(r.Read, r.Offered, r.Cached, c.Offer.Whole || replayed, record.ReasonFewTokens)
	}
	r.Saved = prefill.Engine().PerToken() * time.Duration(r.Read)
	c.of.record.Reuses(r)
}

// read returns how many tokens prefill has read of an offer, if it has told that cached tokens of the prompt came from its cache or were read
// (-1 if it did not tell), and own were certainly in its cache. vLLM reads all that its cache lacks of an offer; or nothing, if that is less
// than kv_recompute_threshold or its cache holds more than the offer (get_num_new_matched_tokens in nixl/base_scheduler.py of 0.33). So it
// then tells another number than that of the offer.
func read(offered, cached, own int) int {
	if cached >= 0 && cached != offered {
		return 0
	}
	return max(0, offered-own)
}

// kept returns how many of the tokens that were handed back prefill had in its cache, beyond its own. If it had a block more, it has computed
// this prompt before, and the hand-back gave it nothing.
func kept(handedBack, cached, own, block int) int {
	if cached >= handedBack+max(1, block) {
		return 0
	}
	return max(0, min(handedBack, cached)-own)
}

// empty returns why a hit saved nothing, "" if it saved something or prefill has not told. whole says that the request goes on with all that
// the ticket covers; then fewer says why prefill has found less than that.
func empty(read, offered, cached int, whole bool, fewer record.Reason) record.Reason {
	switch {
	case read > 0 || cached < 0:
		return ""
	case cached >= offered && whole || cached > offered:
		return record.ReasonHadIt
	case whole:
		return fewer
	}
	return record.ReasonCutShort
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

// leaves returns what caches hold of the turn's prompt without any ticket, after prefill has computed or read it.
func (p *Proving) leaves(prefill *fleet.Incarnation, had []convcache.Prefilled, prompt int) (has []convcache.Prefilled) {
	has = among(nil, had, prompt)
	if prompt > 0 && !p.pair.Quarantined && prefill.Known() && prefill.PrefixCache.On() != facts.No {
		has = convcache.AddPrefilled(has, convcache.Prefilled{Prefill: holderOf(prefill), Tokens: prompt})
	}
	return has
}
