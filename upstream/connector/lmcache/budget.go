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
	whyReceiver = "no_receiver"      // the address at which the decode instance takes KV is not known
	whyLong     = "prompt_too_long"  // prefill needs several steps, so its KV is never announced
	whyShort    = "prompt_too_short" // the prompt has no whole chunk that decode could take
	whyContext  = "context_unknown"  // a chat may use up the context, and the context length is not known
)

// budget has the most and the least tokens of an answer: max_tokens and min_tokens.
type budget struct{ most, least int }

// budgetOf reads the budget of a request, as get_max_tokens does (serve/utils/api_utils.py, vLLM 0.32). ok is false if the budget
// can't be split between the engines: the budget is not known (why says so then), or decode has to refuse it with its own error.
func budgetOf(t *upstream.Transfer) (b budget, why string, ok bool) {
	limit, _ := t.Request.Member("max_tokens")
	if t.Request.API() == body.Chat {
		if newer, _ := t.Request.Member("max_completion_tokens"); !rawjson.IsNull(newer) {
			limit = newer
		}
	}
	left := t.ContextLength - len(t.PromptIDs)
	switch {
	case !rawjson.IsNull(limit):
		if b.most, ok = rawjson.Integer(limit); !ok {
			return b, "", false
		}
	case t.Request.API() == body.Text:
		b.most = textBudget
	case t.ContextLength == 0:
		return b, whyContext, false
	default:
		b.most = left
	}
	if t.ContextLength > 0 {
		b.most = min(b.most, left)
	}
	if least, there := t.Request.Member("min_tokens"); there {
		if b.least, ok = rawjson.Integer(least); !ok {
			return b, "", false
		}
	}
	return b, "", b.most >= 1 && 0 <= b.least && b.least <= b.most
}
