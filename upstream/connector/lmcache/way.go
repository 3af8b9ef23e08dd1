package lmcache

import (
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"carryover/sse/rawjson"
	"carryover/upstream"
)

// way is how the answer comes about behind prefill's first token.
type way int

const (
	// onward: decode goes on behind the token, which the client has already.
	onward way = iota + 1
	// complete: prefill has the whole answer.
	complete
	// again: decode gives the answer from its first token.
	again
)

// wayOn decides how an answer comes about whose first token has this text and ended it, if it did.
func wayOn(r *upstream.Request, b budget, text string, ended bool) way {
	switch {
	case ended || b.most == 1:
		return complete
	case text == "", strings.HasSuffix(text, "\uFFFD"):
		// The token ends inside of a character, or is not shown. Each engine makes text of its own tokens, so that the character's rest
		// would be lost with decode (measured: 1 of 6 answers).
		return again
	case endsInStop(text, stops(r)):
		return again // the stop string would begin with what decode takes for the prompt
	}
	return onward
}

// beginsAtDecode reports whether decode has to give the answer from its first token whatever that is: what a member asks for counts from
// the beginning of the answer, and with the first token in the prompt it would begin one token late; or it makes more of an answer than
// text, for which chats have parsers. chatAtDecode says that chats have these parsers at any time.
func beginsAtDecode(r *upstream.Request, chatAtDecode bool) bool {
	chat := r.API() == upstream.Chat
	for name, value := range r.Members() {
		if fromTheStart(name, value) || chat && ofChatsOnly(r, name, value) {
			return true
		}
	}
	return chat && chatAtDecode
}

// fromTheStart reports whether a member that both APIs know counts from the beginning of the answer.
func fromTheStart(name string, value []byte) bool {
	switch name {
	case "presence_penalty", "frequency_penalty":
		// Of the output's tokens; repetition_penalty counts those of the prompt too (apply_penalties, model_executor/layers/utils.py).
		return !off(value)
	case "seed":
		// The second token would be drawn with the first's random numbers: a generator of the request draws in order
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

// ofChatsOnly reports whether a member asks for what a text completion does not give.
func ofChatsOnly(r *upstream.Request, name string, value []byte) bool {
	switch name {
	case "tools":
		choice, _ := r.Member("tool_choice")
		return !off(value) && string(choice) != `"none"`
	case "include_reasoning", "add_generation_prompt":
		// Reasoning is to be hidden; the answer's role is that of the last message (get_chat_request_role).
		return string(value) != "true"
	case "continue_final_message", "return_prompt_text":
		return !off(value)
	case "return_tokens_as_token_ids":
		return !off(value) // logprobs have the bytes of the token's text then
	case "logprobs":
		return !off(value) && string(value) != "true"
	case "top_logprobs":
		_, ok := rawjson.Integer(value)
		return !ok && !rawjson.IsNull(value)
	}
	return false
}

// off reports whether a member says nothing: null, false, zero, or empty.
func off(value []byte) bool {
	if rawjson.IsNull(value) || string(value) == "false" || string(value) == `""` {
		return true
	}
	if n, err := strconv.ParseFloat(string(value), 64); err == nil {
		return n == 0
	}
	return (value[0] == '[' || value[0] == '{') && rawjson.IsEmpty(value)
}

// stops are the strings that end the answer.
func stops(r *upstream.Request) (all []string) {
	raw, _ := r.Member("stop")
	stop := gjson.ParseBytes(raw)
	if stop.Type == gjson.String {
		return []string{stop.String()}
	}
	for _, s := range stop.Array() {
		all = append(all, s.String())
	}
	return all
}

// endsInStop reports whether a text ends with a beginning of a stop string that is not all of it. With all of it, prefill has ended the answer.
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
