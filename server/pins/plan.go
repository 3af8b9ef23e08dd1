package pins

import (
	"carryover/convcache"
	"carryover/server/continuation"
	"carryover/server/proof"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// Answer describes the answer that has left a ticket. For a ticket of another replica, only Key, Account and Model are known.
type Answer struct {
	Prefill, Decode *fleet.Incarnation // of the answer's turn
	IDs             *proof.IDs         // nil in a pin
	Account         string             // the account that it counts for
	Model           string
	Salt            string // the cache_salt of the turn's legs, without the prefix of a quarantine; "" for none
	Conversation    string // its name for operators; "" if no turn can find the ticket, which can only be handed back
	Key             convcache.Key
	PromptTokens    int
}

// choose decides how long a ticket waits for its turn and what happens then. takes says that it can be handed back. The caller holds p.mu.
func (p *Pins) choose(a *Answer, tenant string, kind continuation.Kind, ticket *convcache.Ticket, takes bool) continuation.Choice {
	switch block := max(1, ticket.Chain.BlockSize); { // it may be unknown
	case a.Conversation == "" && ticket.Tokens/block == a.PromptTokens/block: // prefill has computed them
		return continuation.Choice{End: continuation.Release}
	case a.Conversation == "", p.arena != nil && p.cfg.HandBack == HandBackNow:
		return continuation.Choice{End: continuation.HandBack}
	case p.cfg.HandBackAuto:
		engines := continuation.Engines{PerToken: a.Prefill.Engine().PerToken(), KVTokens: a.Decode.Engine().KVTokens(), BlockSize: ticket.Chain.BlockSize}
		if h := p.holders[a.Decode]; h != nil {
			engines.PinnedTokens = h.tokens[stored]
		}
		terms := continuation.TermsOf(engines, ticket.Tokens, a.PromptTokens)
		terms.HandsBack, terms.Releases, terms.Unlearnt = takes, p.cfg.Release, p.cfg.HandBackAfter
		curve := p.Continuations.Curve(tenant, kind, p.now())
		return terms.Least(&curve)
	case p.arena != nil:
		return continuation.Choice{Wait: p.cfg.HandBackAfter, End: continuation.HandBack}
	}
	return continuation.Choice{End: continuation.Keep}
}

// makeRoom keeps an eighth of the memory free for the ids of answers under way. The account with most ids loses the ids of its newest tickets, whose
// hand-back is farthest away. Such a ticket ends as if it could not be handed back. The caller holds p.mu.
func (p *Pins) makeRoom() {
	for used, most := p.arena.Use(); used > most-most/8 && p.retained.Len > 0; used, _ = p.arena.Use() {
		n := p.retained.Most().Newest().Value
		n.drop()
		p.move(n, stored)
	}
}

// takes reports whether an answer's ticket can be handed back.
func (p *Pins) takes(a *Answer, ticket *convcache.Ticket) bool {
	if p.arena == nil || a.IDs == nil {
		return false
	}
	engine := a.Prefill.Engine()
	if most := facts.ContextLength(engine.Models(), a.Model); most > 0 && ticket.Tokens >= most-1 {
		// The context is full, so no turn can follow. The leg's first token would also be its last, and prefill would keep the blocks for their lease.
		return false
	}
	if why := a.Prefill.PrefixCache.Forgets(); why != "" {
		if before, _ := p.warned.Swap(engine, a.Prefill); before != a.Prefill {
			p.cfg.Logger.Warn("prefill does not keep what is handed back to it; tickets serve turns instead", "prefill", engine.Name, "why", why)
		}
		return false
	}
	most := engine.KVTokens()
	return most == 0 || ticket.Tokens <= most
}
