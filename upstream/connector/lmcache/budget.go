package lmcache

import (
	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
)

// textBudget is the max_tokens of a text completion without max_tokens, or with null (normalize_null_max_tokens,
// completion/protocol.py, vLLM 0.32). A chat without a limit may use up the context.
const textBudget = 16

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

// budgetOf reads the budget of a request, as get_max_tokens does (serve/utils/api_utils.py, vLLM 0.32). why is the reason if the budget
// can't be split between the engines, else "": prefill's token is one, and decode has to give another.
func budgetOf(t *upstream.Transfer) (b budget, why string) {
	limit, _ := t.Request.Member("max_tokens")
	if t.Request.API() == body.Chat {
		if newer, _ := t.Request.Member("max_completion_tokens"); !rawjson.IsNull(newer) {
			limit = newer
		}
	}
	left, ok := t.ContextLength-len(t.PromptIDs), true
	switch {
	case !rawjson.IsNull(limit):
		b.most, ok = rawjson.Integer(limit)
	case t.Request.API() == body.Text:
		b.most = textBudget
	case t.ContextLength == 0:
		return b, whyContext
	default:
		b.most = left
	}
	if t.ContextLength > 0 {
		b.most = min(b.most, left)
	}
	if least, there := t.Request.Member("min_tokens"); there && ok {
		b.least, ok = rawjson.Integer(least)
	}
	if !ok || b.most < 2 || b.least < 0 || b.least > b.most {
		return b, whyRequest
	}
	return b, ""
}
