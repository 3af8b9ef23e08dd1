package lmcache

import (
	"carryover/sse/rawjson"
)

// answer makes the client's whole answer from the answer of a text completion.
func (c *continuation) answer(answer *rawjson.Object) (out []byte, ok bool) {
	choice, ok := onlyChoice(answer.Get("choices"))
	if !ok {
		return nil, false
	}
	choices := list(c.choice(&choice))
	var o object
	for name, value := range answer.Members() {
		o.add(string(name), c.member(string(name), value, "chat.completion", choices))
		if c.chat && string(name) == "usage" { // a text completion has these in the choice
			o.add("prompt_logprobs", nil)
			o.add("prompt_token_ids", c.ids)
			o.add("prompt_text", nil)
		}
	}
	return o.end(), true
}

// choice makes the client's choice from the choice of a text completion.
func (c *continuation) choice(choice *rawjson.Object) []byte {
	var o object
	for name, value := range choice.Members() {
		known := string(name)
		switch known {
		case "text":
			value = joinedText(c.first.choice.Get("text"), value)
			if c.chat {
				known, value = "message", message(value)
			}
		case "logprobs":
			value = c.logprobs(value)
		case "token_ids":
			if isList(value) {
				value = joined(c.tokenIDs(), value)
			}
		case "prompt_token_ids":
			if value = c.ids; c.chat {
				continue
			}
		case "prompt_logprobs":
			if c.chat {
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
