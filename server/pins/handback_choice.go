package pins

import (
	"time"

	"carryover/convcache"
	"carryover/server/continuation"
)

// Choose decides, before an answer's ticket is put, for how long the ticket waits for its turn and what becomes of it then. The caller releases a
// ticket for which AtOnce holds in place of putting it, and otherwise tells Stored of the choice.
func (h *HandBacks) Choose(answer Answer, tenant string, kind continuation.Kind, ticket *convcache.Ticket) continuation.Choice {
	choice, fixed := h.cfg.fixed(h.on())
	if !fixed {
		terms := continuation.TermsOf(continuation.Engines{
			PerToken: answer.Prefill.Engine().PerToken(), KVTokens: answer.Decode.Engine().KVTokens(), PinnedTokens: h.ledger.tokens(answer.Decode),
			BlockSize: ticket.Chain.BlockSize,
		}, ticket.Tokens, answer.PromptTokens)
		terms.HandsBack, terms.Releases, terms.Unlearnt = h.on() && h.queues.takes(answer, ticket), h.cfg.Release, h.cfg.HandBackAfter
		curve := h.learner.Curve(tenant, kind, time.Now())
		choice = terms.Least(&curve)
	}
	h.choices[choice.Now()].Add(1)
	return choice
}

// fixed returns the choice for all tickets, and false where it is learnt. on says that tickets are handed back.
func (c *HandBackConfig) fixed(on bool) (choice continuation.Choice, fixed bool) {
	switch {
	case on && c.HandBack == HandBackNow:
		return continuation.Choice{End: continuation.HandBack}, true
	case on:
		return continuation.Choice{Wait: c.HandBackAfter, End: continuation.HandBack}, !c.HandBackAuto
	default:
		return continuation.Choice{End: continuation.Keep}, !c.HandBackAuto
	}
}
