package body

import (
	"bytes"
	"strings"

	"carryover/sse/rawjson"
)

// What Carryover reads of requests of the Messages API (vllm/entrypoints/anthropic/protocol.py) and the Responses API
// (vllm/entrypoints/openai/responses/protocol.py), in the way that vLLM 0.32 reads them.

// responseMessages is the member that makes a response carry the ids of its prompt and its output.
const responseMessages = "enable_response_messages"

// stateless refuses requests that need a store of earlier answers. vLLM's store is in the memory of one API server, so
// prefill does not have decode's answers; and vLLM silently ignores a conversation. The error is a *BadRequestError.
func (r *Request) stateless() error {
	if r.api != Responses {
		return nil
	}
	for _, row := range [...]struct{ member, message string }{
		{"previous_response_id", "previous_response_id is not supported: responses are not stored; send the whole history as input"},
		{"conversation", "conversation is not supported: conversations are not stored; send the whole history as input, and name it in prompt_cache_key"},
	} {
		if !rawjson.IsNull(r.body.Get(row.member)) {
			return &BadRequestError{Message: row.message, Param: row.member, Code: "unsupported_parameter"}
		}
	}
	if !off(r.body.Get("background")) {
		return &BadRequestError{
			Message: "background is not supported: responses are not stored; send the request without it, as a stream where it takes long",
			Param:   "background", Code: "unsupported_parameter",
		}
	}
	return nil
}

// attribution begins the system block in which Claude Code describes itself. The block has a new hash in each request,
// and vLLM drops it.
const attribution = "x-anthropic-billing-header"

// preamble returns what stands before the history, as the client wrote it, without the attribution of Claude Code.
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

// preambleLen returns the length of the text of the preamble.
func (p Prompt) preambleLen() int {
	n := len(rawjson.GetText(p.preamble()))
	for block := range rawjson.Elements(p.body.Get("system")) {
		if text := rawjson.GetText(block, "text"); !strings.HasPrefix(text, attribution) {
			n += len(text)
		}
	}
	return n
}

// plainHistory reports whether a history consists of text, tool calls and tool results only. It is false for anything
// that it does not know.
func (p Prompt) plainHistory() bool {
	if raw := p.body.Get(p.api.subject()); !p.history.IsArray() {
		return p.api == Responses && rawjson.Kind(raw) == '"'
	}
	for element := range p.history.Elements() {
		if !element.IsObject() || !plainItem(element) {
			return false
		}
	}
	return true
}

// plainItem reports whether a message or an input item is plain. Where a name occurs twice, both values must be.
func plainItem(item rawjson.Element) bool {
	for at := range item.Members() {
		switch string(at.Name()) {
		case "type":
			switch string(at.Value) {
			case `"message"`, `"function_call"`, `"function_call_output"`, `"reasoning"`:
			default:
				return false
			}
		case "content", "output", "summary":
			if !plainContent(at.Value) {
				return false
			}
		}
	}
	return true
}

// plainContent reports whether a content is a text, or a list of text blocks.
func plainContent(raw []byte) bool {
	if raw[0] == '"' || rawjson.IsNull(raw) {
		return true
	}
	s := rawjson.Scanner{Data: raw}
	return s.Elements(func() error {
		return s.Members(func(m rawjson.Member) error { return plainMember(&s, m) })
	}) == nil
}

// plainMember reads a member of a block. It returns an error if the member shows that the block is not text.
func plainMember(s *rawjson.Scanner, m rawjson.Member) error {
	if err := s.Skip(); err != nil {
		return err
	}
	value := s.Data[m.Value:s.Pos]
	switch {
	case m.Named("type"):
		switch string(value) {
		case `"text"`, `"input_text"`, `"output_text"`, `"summary_text"`, `"reasoning_text"`, `"refusal"`,
			`"tool_use"`, `"tool_result"`, `"tool_reference"`, `"thinking"`, `"redacted_thinking"`:
			return nil
		}
		return errRefused
	case m.Named("content") && !plainContent(value):
		return errRefused
	case m.Named("source"), m.Named("image_url"), m.Named("file_id"):
		return errRefused
	}
	return nil
}
