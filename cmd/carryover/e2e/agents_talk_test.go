package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
)

// agentTalk is the side of an agent in one random conversation, in the shape of Claude Code (Messages) or of Codex (Responses).
// Everything that it does follows from its seed and from what it is answered.
type agentTalk struct {
	person
	path    string
	persona string // of the sub-agent, "" for the agent itself
	inline  bool   // a system message among the others on every turn

	nameless bool // neither a header nor a member names the session
	dropped  bool // nothing of the last answer is in the history

	history []any
	results []any // what answers tool calls
}

func newAgentTalk(seed uint64, number int) *agentTalk {
	id, draw := fmt.Sprintf("0d9c2f6a-%04x-4a51-8f43-%012x", seed, number), rand.New(rand.NewPCG(seed, uint64(number)))
	k := &agentTalk{person: person{id: id, draw: draw}, path: pathMessages}
	if number%2 == 1 {
		k.path = pathResponses
	}
	k.tools, k.thoughts, k.inline, k.parts = !k.odds(3), !k.odds(3), k.odds(3), k.odds(2)
	return k
}

// sub is a sub-agent, which shares the session of its parent and nothing else.
func (k *agentTalk) sub() *agentTalk {
	child := *k
	child.persona, child.history, child.results = "You search files, and nothing else. ", nil, nil
	return &child
}

// next makes the request of the next turn, and its headers.
func (k *agentTalk) next(turn int) (http.Header, object) {
	switch k.rewritten = true; {
	case turn > 2 && k.odds(6):
		k.compact()
	case turn > 2 && k.odds(6):
		k.rewrite()
	default:
		k.rewritten = k.dropped
	}
	k.ask()
	body := object{"model": "sim", "stream": k.odds(2), "temperature": 0}
	header := http.Header{}
	if k.path == pathResponses {
		k.response(header, body)
	} else {
		k.message(header, body)
	}
	return header, body
}

// message makes a request as Claude Code does: the attribution line is another in each request, cache_control moves to the end.
func (k *agentTalk) message(header http.Header, body object) {
	mark := map[string]string{"type": "ephemeral"}
	body["max_tokens"] = 24 + 40*k.draw.IntN(3)
	body["system"] = []any{
		object{"type": "text", "text": fmt.Sprintf("x-anthropic-billing-header: cc_version=2.1.330; cch=%05x;", k.draw.IntN(1<<20))},
		object{"type": "text", "text": k.system(), "cache_control": mark},
	}
	messages := slices.Clone(k.history)
	if last, ok := messages[len(messages)-1].(object); ok && last["role"] == "user" && k.parts {
		if blocks, ok := last["content"].([]any); ok {
			marked := slices.Clone(blocks)
			block := object{"cache_control": mark}
			for name, value := range marked[len(marked)-1].(object) {
				block[name] = value
			}
			marked[len(marked)-1] = block
			messages[len(messages)-1] = object{"role": "user", "content": marked}
		}
	}
	body["messages"] = messages
	if k.tools {
		body["tools"] = []any{object{"name": "lookup", "description": "Looks things up.", "input_schema": lookupSchema}}
	}
	way := k.draw.IntN(3)
	switch {
	case k.nameless:
	case way == 0:
		header.Set("X-Claude-Code-Session-Id", k.id)
	case way == 1:
		body["metadata"] = map[string]string{"user_id": "user_5f1b_account__session_" + k.id}
	default:
		body["metadata"] = map[string]string{"user_id": string(encode(map[string]string{"device_id": "5f1b", "session_id": k.id}))}
	}
}

// response makes a request as Codex does.
func (k *agentTalk) response(header http.Header, body object) {
	body["max_output_tokens"] = 24 + 40*k.draw.IntN(3)
	body["instructions"], body["input"], body["store"] = k.system(), k.history, k.odds(4)
	if k.tools {
		body["tools"] = []any{object{"type": "function", "name": "lookup", "description": "Looks things up.", "parameters": lookupSchema}}
	}
	way := k.draw.IntN(3)
	switch {
	case k.nameless:
	case way == 0:
		header.Set("Session-Id", k.id)
	default:
		body["prompt_cache_key"] = k.id
	}
}

var lookupSchema = json.RawMessage(`{"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"string"}}}`)

func (k *agentTalk) system() string {
	return k.persona + "You are a patient agent. " + longText(len(k.persona))
}

// ask adds what the agent says: results of tools, or a question.
func (k *agentTalk) ask() {
	text := k.asks()
	switch {
	case k.results == nil && k.odds(5):
		text += " THINK"
	case k.results == nil && k.tools && k.odds(4): // two calls at once
		const call = "<tool_call>\n{\"name\": \"lookup\", \"arguments\": {\"b\": %d, \"a\": \"x\"}}\n</tool_call>"
		text += fmt.Sprintf(" SAY "+call+"\n"+call, k.draw.IntN(9), k.draw.IntN(9))
	case k.results == nil && k.tools && k.odds(2):
		text += fmt.Sprintf(` CALL lookup {"b": %d,   "a":"é %d"}`, k.draw.IntN(9), k.draw.IntN(9))
	}
	if k.path == pathResponses {
		k.history = append(slices.Clone(k.history), k.results...)
		if k.results == nil || k.odds(4) {
			k.history = append(k.history, object{"type": "message", "role": "user", "content": []any{object{"type": "input_text", "text": text}}})
		}
	} else {
		blocks := slices.Clone(k.results)
		if k.results == nil || k.odds(4) {
			blocks = append(blocks, object{"type": "text", "text": text})
		}
		content := any(blocks)
		if k.results == nil && !k.parts {
			content = text
		}
		k.history = append(slices.Clone(k.history), object{"role": "user", "content": content})
		if k.inline {
			k.history = append(k.history, object{"role": "system", "content": fmt.Sprintf("<total_tokens>%d tokens left</total_tokens>", 100000-len(k.history))})
		}
	}
	k.results = nil
}

// compact is what agents do when a history is too long: a summary takes its place.
func (k *agentTalk) compact() {
	k.history, k.results = nil, nil
	text := "This session goes on from an earlier one. Summary: " + k.question()
	if k.path == pathResponses {
		k.history = []any{object{"type": "message", "role": "user", "content": text}}
		return
	}
	k.history = []any{object{"role": "user", "content": text}, object{"role": "assistant", "content": "I go on."}}
}

// rewrite goes back to before the last question, as a user who asks otherwise.
func (k *agentTalk) rewrite() {
	k.results = nil
	for at := len(k.history) - 1; at > 0; at-- {
		if item, ok := k.history[at].(object); ok && item["role"] == "user" && !strings.Contains(string(encode(item)), "tool_result") {
			k.history = k.history[:at]
			return
		}
	}
}

// heard makes the answer part of the history, as agents do. Calls that the limit has cut are dropped with what is behind them.
func (k *agentTalk) heard(a *agentAnswer) {
	var kept []any
	k.results = nil
	for _, part := range a.parts {
		switch part["type"] {
		case "thinking", "reasoning":
			if k.thoughts {
				kept = append(kept, part)
			}
			continue
		case "tool_use":
			if _, whole := part["input"].(object); !whole {
				continue
			}
			k.results = append(k.results, object{"type": "tool_result", "tool_use_id": part["id"], "content": "found " + k.question()})
		case "function_call":
			if text, _ := part["arguments"].(string); !json.Valid([]byte(text)) {
				continue
			}
			k.results = append(k.results, object{"type": "function_call_output", "call_id": part["call_id"], "output": "found " + k.question()})
		}
		kept = append(kept, part)
	}
	if k.dropped = kept == nil; k.path == pathResponses {
		k.history = append(k.history, kept...)
		return
	}
	if kept == nil {
		kept = []any{object{"type": "text", "text": "(nothing)"}}
	}
	k.history = append(k.history, object{"role": "assistant", "content": kept})
}
