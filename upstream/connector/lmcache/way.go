package lmcache

import (
	"cmp"
	"strconv"
	"strings"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
)

// continues reports whether decode can continue an answer after prefill's first token, which has this text. Otherwise decode gives the
// answer from its beginning.
func continues(r *body.Request, text string) bool {
	// A token that ends inside of a character, or has no text: each engine makes text of its own tokens only, so decode would lose the
	// rest of the character (measured: in 1 of 6 answers). A stop string that begins in the first token: decode takes this for a part of
	// the prompt.
	return text != "" && !strings.HasSuffix(text, "\uFFFD") && !endsInStop(text, stops(r))
}

// beginsAtDecode reports whether decode has to give the answer from its beginning, whatever the first token is. There are two reasons: a
// member of the request counts from the beginning of the answer, and would count one token late if the first token were in the prompt; or
// a chat needs parsers that text completions do not have.
func beginsAtDecode(r *body.Request) bool {
	chat := r.API() == body.Chat
	for raw, value := range r.Members() {
		if name := string(raw); fromTheStart(name, value) || chat && ofChatsOnly(r, name, value) {
			return true
		}
	}
	return false
}

// fromTheStart reports whether a member that both APIs know counts from the beginning of the answer.
func fromTheStart(name string, value []byte) bool {
	switch name {
	case "presence_penalty", "frequency_penalty":
		// These count the tokens of the output. repetition_penalty counts the tokens of the prompt too, so it may stay (apply_penalties,
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

// ofChatsOnly reports whether a member asks for something that a text completion can't give.
func ofChatsOnly(r *body.Request, name string, value []byte) bool {
	switch name {
	case "tools":
		choice, _ := r.Member("tool_choice")
		return !off(value) && string(choice) != `"none"`
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

// off reports whether a member asks for nothing: it is null, false, zero, or empty.
func off(value []byte) bool {
	if rawjson.IsNull(value) || string(value) == "false" || string(value) == `""` {
		return true
	}
	if n, err := strconv.ParseFloat(string(value), 64); err == nil {
		return n == 0
	}
	return (value[0] == '[' || value[0] == '{') && rawjson.IsEmpty(value)
}

// stops returns the stop strings, which end the answer.
func stops(r *body.Request) (all []string) {
	raw, _ := r.Member("stop")
	if stop, ok := rawjson.Text(raw); ok {
		return []string{stop}
	}
	for stop := range rawjson.Elements(raw) {
		all = append(all, rawjson.GetText(stop))
	}
	return all
}

// endsInStop reports whether a text ends with a part of a stop string, from its beginning. After a whole stop string prefill has ended
// the answer itself.
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
