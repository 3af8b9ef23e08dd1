package lmcache

import (
	"cmp"
	"strconv"
	"strings"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
)

// continues is false if decode has to give the answer from its beginning. text is prefill's first token.
func continues(r *body.Request, text string) bool {
	// A token may end inside a character, or have no text: each engine makes text of its own tokens only, so decode would lose the rest of
	// the character (measured: in 1 of 6 answers). Decode would take a stop string that begins in the first token for a part of the prompt.
	return text != "" && !strings.HasSuffix(text, "\uFFFD") && !endsInStop(text, stops(r))
}

// beginsAtDecode reports whether decode has to give the answer from its beginning, whatever the first token is. Either a member of the
// request counts from the beginning of the answer, and would count one token late; or a chat needs parsers that text completions do not
// have.
func beginsAtDecode(r *body.Request) bool {
	chat := r.API == body.Chat
	for raw, value := range r.Members() {
		if name := string(raw); fromTheStart(name, value) || chat && ofChatsOnly(r, name, value) {
			return true
		}
	}
	return false
}

func fromTheStart(name string, value []byte) bool {
	switch name {
	case "presence_penalty", "frequency_penalty":
		// These count the tokens of the output. repetition_penalty counts the prompt's too, so it may stay (apply_penalties,
		// model_executor/layers/utils.py).
		return !off(value)
	case "seed":
		// The request's generator draws in order, so decode would draw the second token with the random numbers of the first
		// (random_sample, v1/sample/ops/topk_topp_sampler.py).
		return !rawjson.IsNull(value)
	case "response_format":
		o, err := rawjson.ParseObject(value)
		return !rawjson.IsNull(value) && (err != nil || string(o.Get("type")) != `"text"`) // a grammar begins with the answer
	case "structured_outputs", "bad_words", "repetition_detection", "watermarking", "vllm_xargs", "echo":
		return !off(value)
	case "thinking_token_budget":
		return !rawjson.IsNull(value)
	}
	return strings.HasPrefix(name, "guided_") && !off(value) // structured_outputs of older engines
}

func ofChatsOnly(r *body.Request, name string, value []byte) bool {
	switch name {
	case "tools":
		return !off(value) && string(r.Member("tool_choice")) != `"none"`
	case "include_reasoning", "add_generation_prompt":
		// Reasoning has to be hidden; or the answer has the role of the last message (get_chat_request_role).
		return string(value) != "true"
	case "continue_final_message", "return_prompt_text":
		return !off(value)
	case "return_tokens_as_token_ids":
		return !off(value) // a chat's logprobs then still have the bytes of the token's text
	case "logprobs":
		return !off(value) && string(value) != "true"
	case "top_logprobs":
		_, ok := rawjson.Integer(value)
		return !ok && !rawjson.IsNull(value)
	}
	return false
}

func off(value []byte) bool {
	if rawjson.IsNull(value) || string(value) == "false" || string(value) == `""` {
		return true
	}
	if n, err := strconv.ParseFloat(string(value), 64); err == nil {
		return n == 0
	}
	return (value[0] == '[' || value[0] == '{') && rawjson.IsEmpty(value)
}

func stops(r *body.Request) (all []string) {
	raw := r.Member("stop")
	if stop, ok := rawjson.Text(raw); ok {
		return []string{stop}
	}
	for stop := range rawjson.Elements(raw) {
		all = append(all, rawjson.GetText(stop))
	}
	return all
}

// endsInStop looks for the beginning of a stop string at the end. After a whole one prefill has ended the answer itself.
func endsInStop(text string, stops []string) bool {
	for _, stop := range stops {
		for n := 1; n < len(stop) && n <= len(text); n++ {
			if strings.HasSuffix(text, stop[:n]) {
				return true
			}
		}
	}
	return false
}

// Decode serves a turn alone for these reasons.
const (
	whyRequest  = "connector"        // the connector can't move the request, or decode has to refuse it with its own error
	whyReceiver = "no_receiver"      // the address at which the decode instance takes KV is not known
	whyLong     = "prompt_too_long"  // prefill needs several steps, so its KV is never announced
	whyShort    = "prompt_too_short" // the prompt has no whole chunk that decode could take
	whyContext  = "context_unknown"  // a chat may use up the context, and the context length is not known
)

type budget struct{ most, least int }

// budgetOf returns why if the engines can't share the budget, else "": prefill gives one token, and decode has to give another.
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
