package lmcache

import (
	"carryover/sse/rawjson"
)

// answer makes the client's whole answer from the answer of a text completion. behind is the first token that comes before this answer,
// nil if the answer itself has the first token.
func (s *shape) answer(answer *rawjson.Object, behind *first) (out []byte, ok bool) {
	choice, ok := onlyChoice(answer.Get("choices"))
	if !ok {
		return nil, false
	}
	var o object
	for name, value := range answer.Members() {
		switch string(name) {
		case "id":
			value = s.id
		case "object":
			if s.chat {
				value = []byte(`"chat.completion"`)
			}
		case "created":
			value = s.created
		case "model":
			value = s.model
		case "choices":
			value = list(s.choice(&choice, behind))
		case "usage":
			o.add("usage", usage(value, behind))
			if s.chat { // a text completion has these in the choice
				o.add("prompt_logprobs", nil)
				o.add("prompt_token_ids", s.ids)
				o.add("prompt_text", nil)
			}
			continue
		case "kv_transfer_params":
			if behind == nil {
				continue // prefill's params, for Carryover only
			}
		}
		o.add(string(name), value)
	}
	return o.end(), true
}

// choice makes the client's choice from the choice of a text completion.
func (s *shape) choice(choice *rawjson.Object, behind *first) []byte {
	var o object
	for name, value := range choice.Members() {
		known := string(name)
		switch known {
		case "text":
			if behind != nil {
				value = joinedText(behind.choice.Get("text"), value)
			}
			if s.chat {
				known, value = "message", message(value)
			}
		case "logprobs":
			value = s.logprobs(value, behind)
		case "token_ids":
			switch {
			case behind == nil && s.ids == nil:
				value = nil // Carryover asked for the ids, the client did not
			case behind != nil && isList(value):
				value = joined(s.tokenIDs(behind), value)
			}
		case "prompt_token_ids":
			if value = s.ids; s.chat {
				continue
			}
		case "prompt_logprobs":
			if s.chat {
				continue
			}
		}
		o.add(known, value)
	}
	return o.end()
}

// message returns the message of a chat whose content no parser has read (ChatMessage, chat_completion/protocol.py, vLLM 0.32).
func message(content []byte) []byte {
	var o object
	o.add("role", []byte(`"assistant"`))
	o.add("content", content)
	for _, name := range []string{"refusal", "annotations", "audio", "function_call", "reasoning"} {
		o.add(name, nil)
	}
	return o.end()
}
