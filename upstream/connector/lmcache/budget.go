package lmcache

import (
	"cmp"

	"carryover/upstream"
)

// Why decode serves a turn alone.
const (
	whyRequest  = "connector"        // the connector can't move the request, or decode has to refuse it with its own error
	whyReceiver = "no_receiver"      // the address at which the decode instance takes KV is not known
	whyLong     = "prompt_too_long"  // prefill needs several steps, so its KV is never announced
	whyShort    = "prompt_too_short" // the prompt has no whole chunk that decode could take
	whyContext  = "context_unknown"  // a chat may use up the context, and the context length is not known
)

// budget has the most and the least tokens of an answer: max_tokens and min_tokens.
type budget struct{ most, least int }

// budgetOf returns the budget of a request. why is the reason if the budget can't be split between the engines, else "": prefill's token is
// one, and decode has to give another.
func budgetOf(t *upstream.Transfer) (b budget, why string) {
	most, least, ok := t.Request.Budget()
	left := t.ContextLength - len(t.PromptIDs)
	switch {
	case !ok:
		return b, whyRequest
	case most == 0 && t.ContextLength == 0:
		return b, whyContext
	case most == 0, t.ContextLength > 0:
		most = min(cmp.Or(most, left), left)
	}
	if most < 2 || least > most {
		return b, whyRequest
	}
	return budget{most, least}, ""
}
