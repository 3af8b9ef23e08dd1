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
	Prefill, Decode *fleet.Incarnation // of the answer's turn; Prefill changes if the ticket will be handed back to another instance
	IDs             *proof.IDs         // nil in a pin
	Account         string             // the account that it counts for
	Model           string
	Salt            string        // the cache_salt of the turn's legs, without the prefix of a quarantine; "" for none
	Conversation    string        // its name for operators, "" if they see the key
	Key             convcache.Key // zero if the request names no conversation
	Affinity        string        // the conversation's routing key
	PromptTokens    int
}

// tokenIDs are the ids of a ticket's tokens. Free returns their memory.
type tokenIDs interface {
	Len() int
	AppendList(dst []byte) []byte
	Are(list []byte) bool
	Free()
}

// Choose decides, before an answer's ticket is put, how long the ticket waits for its turn and what happens then. If the choice is an immediate
// release, the caller does not put the ticket, but releases it.
func (p *Pins) Choose(answer Answer, tenant string, kind continuation.Kind, ticket *convcache.Ticket) continuation.Choice {
	choice := continuation.Choice{End: continuation.Keep}
	switch {
	case p.arena != nil && p.cfg.HandBack == HandBackNow:
		choice.End = continuation.HandBack
	case p.cfg.HandBackAuto:
		terms := p.terms(answer, ticket)
		curve := p.Continuations.Curve(tenant, kind, p.now())
		choice = terms.Least(&curve)
	case p.arena != nil:
		choice.Wait, choice.End = p.cfg.HandBackAfter, continuation.HandBack
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.pins[ticket.ID]; n != nil {
		switch at := p.now().Add(choice.Wait); {
		case choice.End == continuation.Release:
			n.retire = at
		case choice.End == continuation.HandBack && n.ids != nil:
			n.retreat = at
		}
	}
	switch choice.Now() {
	case continuation.HandBack:
		p.counts.Choices.HandBack++
	case continuation.Release:
		p.counts.Choices.Release++
	default:
		p.counts.Choices.Ticket++
	}
	return choice
}

func (p *Pins) terms(answer Answer, ticket *convcache.Ticket) continuation.Terms {
	engines := continuation.Engines{
		PerToken: answer.Prefill.Engine().PerToken(), KVTokens: answer.Decode.Engine().KVTokens(), BlockSize: ticket.Chain.BlockSize,
	}
	p.mu.Lock()
	if h := p.holders[answer.Decode]; h != nil {
		engines.PinnedTokens = h.tokens[stored]
	}
	p.mu.Unlock()
	terms := continuation.TermsOf(engines, ticket.Tokens, answer.PromptTokens)
	terms.HandsBack, terms.Releases, terms.Unlearnt = p.takes(answer, ticket), p.cfg.Release, p.cfg.HandBackAfter
	return terms
}

// makeRoom keeps an eighth of the memory free for the ids of answers under way. The account with most ids loses the ids of its newest tickets, whose
// hand-back is farthest away. Such a ticket ends as if it could not be handed back. The caller holds p.mu.
func (p *Pins) makeRoom(use func() (used, most int64)) {
	for used, most := use(); used > most-most/8 && p.retained.Len > 0; used, _ = use() {
		n := p.retained.Most().Newest().Value
		n.drop()
		p.move(n, stored)
	}
}

// takes reports whether an answer's ticket can be handed back.
func (p *Pins) takes(answer Answer, ticket *convcache.Ticket) bool {
	if p.arena == nil {
		return false
	}
	engine := answer.Prefill.Engine()
	if most := facts.ContextLength(engine.Models(), answer.Model); most > 0 && ticket.Tokens >= most-1 {
		// The context is full, so no turn can follow. The leg's first token would also be its last, and prefill would keep the blocks for their lease.
		return false
	}
	if why := answer.Prefill.PrefixCache.Forgets(); why != "" {
		if p.firstOf(answer.Prefill) {
			p.cfg.Logger.Warn("prefill does not keep what is handed back to it; tickets serve turns instead", "prefill", named(answer.Prefill), "why", why)
		}
		return false
	}
	most := engine.KVTokens()
	return most == 0 || ticket.Tokens <= most
}
