package reuse

import (
	"slices"

	"carryover/convcache"
	"carryover/server/record"
	"carryover/upstream/fleet"
)

// How tokens were proven equal: by their ids, or in prefill's own prefix cache, where a turn reuses handed-back KV without a ticket.
const (
	proofTokens = "tokens"
	proofEngine = "engine"
)

// sharedPrefixTokens returns how many tokens prefill's caches had of the conversation's first turn, as far as that is known. They are the
// prefix that conversations share, such as a system prompt.
func (p *Proving) sharedPrefixTokens(looked *Lookup) (tokens int) {
	for _, known := range [...][]convcache.KeyedBranch{looked.Branches, looked.Notes} {
		for i := range known {
			tokens = max(tokens, min(known[i].SharedPrefixTokens, p.same(&known[i])))
		}
	}
	if len(looked.Branches)+len(looked.Notes) == 0 && !p.request.Length.Answered {
		tokens = max(p.record.Reuse().Cached, 0)
	}
	return tokens
}

// handedBackTo returns how many tokens of the prompt were handed back to an incarnation of prefill. whole says that the prompt goes on with all of
// one hand-back.
func (c *Claim) handedBackTo(prefill *fleet.Incarnation) (tokens int, whole bool) {
	for i := range c.looked.Notes {
		if n := &c.looked.Notes[i]; n.Prefill == holderOf(prefill) {
			same := c.of.same(n)
			tokens, whole = max(tokens, same), whole || same == n.Tokens
		}
	}
	return tokens, whole
}

// foundByEngine records what prefill's own caches were worth to a turn whose conversation was handed back, once prefill has answered
// without a ticket: what it found beyond what it has of its own. same says that it is the engine that has answered in this incarnation before.
func (c *Claim) foundByEngine(prefill *fleet.Incarnation, own int, same bool) {
	notes := c.looked.Notes
	if len(notes) == 0 || c.Ticket != nil {
		return
	}
	r := c.of.record.Reuse()
	defer func() { c.of.record.Reuses(r) }()
	newest, here := &notes[0], same && slices.ContainsFunc(notes, func(n convcache.KeyedBranch) bool { return n.Prefill == holderOf(prefill) })
	if beyond := r.Cached - c.expected(own); beyond > 0 {
		r.Hit, r.Reason, r.Differs, r.Proof, r.Offered, r.FreshAsOf = true, "", "", proofEngine, beyond, newest.FreshAsOf
		if here {
			prefill.PrefixCache.HandedBackFound(true)
		}
		return
	}
	if !c.looked.AllHandedBack() || r.Cached < 0 {
		return
	}
	lost := c.goesOn(own)
	for i := range notes {
		if c.of.anothers(&notes[i].Branch) || here && !lost && len(c.of.IDs.Prompt()) > 0 {
			parts, _ := c.of.outline.agrees(&notes[i].Branch)
			r.Reason, r.Differs = record.ReasonRewritten, c.of.request.API.PartName(parts)
			return
		}
	}
	switch r.Reason = record.ReasonHandedBackElsewhere; {
	case here && !c.lacksOwn(own):
		r.Reason = c.of.missed(convcache.Empty)
	case here:
		r.Reason = record.ReasonHandedBackEvicted
		if lost {
			prefill.PrefixCache.HandedBackFound(false)
		}
	}
}

// goesOn reports whether the prompt, by the ids that prefill has computed, goes on with more of what was handed back than prefill would have had
// without it.
func (c *Claim) goesOn(own int) bool {
	return slices.ContainsFunc(c.looked.Notes, func(n convcache.KeyedBranch) bool { return c.of.proof.Offer(n.Branch).Tokens > c.expected(own) })
}
