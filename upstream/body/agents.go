package body

import (
	"bytes"
	"strings"

	"carryover/sse/rawjson"
)

// Requests of the Messages API (vllm/entrypoints/anthropic/protocol.py) and the Responses API
// (vllm/entrypoints/openai/responses/protocol.py), as vLLM 0.32 reads them.

const responseMessages = "enable_response_messages"

// stateless refuses requests that need a store of earlier answers, with a *BadRequestError. vLLM's store is in the memory of one API
// server, so prefill does not have decode's answers; and vLLM silently ignores a conversation.
func (r *Request) stateless() error {
	if r.API != Responses {
		return nil
	}
	for _, row := range [...]struct{ member, message string }{
		{"previous_response_id", "previous_response_id is not supported: responses are not stored; send the whole history as input"},
		{"conversation", "conversation is not supported: conversations are not stored; send the whole history as input, and name it in prompt_cache_key"},
		{"background", "background is not supported: responses are not stored; send the request without it, as a stream where it takes long"},
	} {
		if !off(r.body.Get(row.member)) {
			return &BadRequestError{Message: row.message, Param: row.member, Code: "unsupported_parameter"}
		}
	}
	return nil
}

// attribution begins the system block in which Claude Code describes itself. Its hash is new in each request, and vLLM drops it.
const attribution = "x-anthropic-billing-header"

func (p Prompt) preamble() []byte {
	if p.api == Responses {
		return p.body.Get("instructions")
	}
	system := p.body.Get("system")
	if rawjson.Kind(system) != '[' {
		return system
	}
	s := rawjson.Scanner{Data: system}
	if more, _ := s.Open('['); more && s.Skip() == nil && bytes.Contains(system[:s.Pos], []byte(`"`+attribution)) {
		return system[s.Pos:]
	}
	return system
}

func (p Prompt) preambleLen() int {
	n := len(rawjson.GetText(p.preamble()))
	for block := range rawjson.Elements(p.body.Get("system")) {
		if text := rawjson.GetText(block, "text"); !strings.HasPrefix(text, attribution) {
			n += len(text)
		}
	}
	return n
}

// plainHistory is true for text, tool calls and tool results only. Anything unknown makes it false.
func (p Prompt) plainHistory() bool {
	for _, name := range [...]string{"system", "instructions"} {
		if raw := p.body.Get(name); raw != nil && !p.api.fits(text|parts, raw) {
			return false
		}
	}
	if raw := p.body.Get(p.api.subject()); !p.history.IsArray() {
		return p.api == Responses && rawjson.Kind(raw) == '"'
	}
	for element := range p.history.Elements() {
		if !element.IsObject() || !p.api.plainItem(element) {
			return false
		}
	}
	return true
}
