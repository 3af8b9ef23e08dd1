package lmcache

import (
	"carryover/sse/rawjson"
	"carryover/upstream"
)

// textBudget is max_tokens of a text completion that names none, or null (normalize_null_max_tokens, completion/protocol.py, vLLM
// 0.32). A chat may use up the context.
const textBudget = 16

// Why decode serves a turn alone.
const (
	whyReceiver = "no_receiver"      // nothing says where the decode instance takes KV
	whyLong     = "prompt_too_long"  // for one step of prefill, so that its KV is never announced
	whyShort    = "prompt_too_short" // decode would compute all that it does not ask for by a whole chunk
	whyContext  = "context_unknown"  // a chat may use up the context, whose length is not known
)

// budget is how many tokens an answer may and must have: max_tokens and min_tokens.
type budget struct{ most, least int }

// budgetOf reads the budget of a request, as get_max_tokens does (serve/utils/api_utils.py, vLLM 0.32). ok is false, perhaps with a
// word why, where it can't be split between the engines: it is not known, or decode is to refuse it in its own words.
func budgetOf(t *upstream.Transfer) (b budget, why string, ok bool) {
	limit, _ := t.Request.Member("max_tokens")
	if t.Request.API() == upstream.Chat {
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
	case t.Request.API() == upstream.Text:
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
