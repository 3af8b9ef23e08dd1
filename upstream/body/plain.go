package body

import (
	"bytes"
	"errors"

	"carryover/sse/rawjson"
)

type types uint8

// Templates write objects and lists whose members are not in the table as text: engines look for media and embeddings only where the table goes
// on.
const (
	text types = 1 << iota
	number
	flag
	object
	list
	parts    // a list of content parts
	calls    // a list of tool calls
	function // the function of a tool call

	anything = text | number | flag | object | list
)

type members map[string]types

// plainText lists content that its token ids determine, for each API, and each type of message or input item and of content part ("" for none):
// engines write it into the prompt as text, or drop it. All else may be more than its ids show: all images of one size have the same ids, and so
// have embeddings. The files are vLLM's, of 0.32 and 0.33.
//
//nolint:gochecknoglobals // immutable table
var plainText = [APIs]struct{ messages, parts map[string]members }{
	Chat: {
		messages: map[string]members{"": {
			// Templates see these (parse_chat_message_content, renderers/chat_utils). Since 0.33 a reasoning may be an object: embeddings.
			"role": text, "content": text | parts, "name": text, "tool_call_id": text, "tool_calls": calls, "reasoning": text,
			"reasoning_content": text, "task": text, "tools": list,
			// Answers have these too (ChatMessage, openai/chat_completion/protocol.py); OpenAI's audio names a recording.
			"refusal": text, "annotations": list, "function_call": function, "audio": 0,
			// Clients and gateways add these; engines drop them.
			"id": text, "prefix": flag, "partial": flag, "phase": text, "cache_control": object, "provider_specific_fields": object,
			"reasoning_details": list, "thinking_blocks": list,
			// OpenAI's SDKs add this to parsed answers, here and below.
			"parsed": anything,
		}},
		// _TEXT_CONTENT_PART_TYPES in renderers/chat_utils, and such parts of OpenAI's and Anthropic's SDKs.
		parts: map[string]members{
			"":               chatText,
			"text":           chatText,
			"input_text":     chatText,
			"output_text":    chatText,
			"refusal":        {"refusal": text, "cache_control": object},
			"thinking":       {"thinking": text, "closed": flag, "signature": text, "cache_control": object},
			"tool_reference": {"name": text, "tool_name": text, "cache_control": object},
		},
	},
	// AnthropicMessage and AnthropicContentBlock (anthropic/protocol.py); messages may have an answer's members, which are dropped.
	Messages: {
		messages: map[string]members{"": claudeMessage, "message": claudeMessage},
		parts: map[string]members{
			"text":              {"text": text, "citations": list, "parsed_output": anything, "cache_control": object},
			"thinking":          {"thinking": text, "signature": text, "cache_control": object},
			"redacted_thinking": {"data": text, "cache_control": object}, // dropped
			"tool_use":          {"id": text, "name": text, "input": object, "caller": object, "cache_control": object},
			"tool_result":       {"tool_use_id": text, "content": text | parts, "is_error": flag, "cache_control": object},
			"tool_reference":    {"tool_name": text, "name": text, "cache_control": object},
		},
	},
	// ResponseInputOutputItem (openai/responses/protocol.py) as construct_input_messages (openai/responses/utils.py) reads it.
	Responses: {
		messages: map[string]members{
			"":        responsesMessage,
			"message": responsesMessage,
			"function_call": {
				"id": text, "call_id": text, "name": text, "namespace": text, "arguments": text, "status": text, "caller": object, "async": flag,
				"parsed_arguments": anything,
			},
			"function_call_output": {
				"id": text, "call_id": text, "name": text, "namespace": text, "output": text | parts, "status": text, "caller": object,
			},
			"reasoning": {"id": text, "summary": parts, "content": parts, "encrypted_content": text, "status": text},
		},
		parts: map[string]members{
			"text":           responsesText,
			"input_text":     responsesText,
			"output_text":    responsesText,
			"summary_text":   {"text": text},
			"reasoning_text": {"text": text},
			"refusal":        {"refusal": text},
		},
	},
}

// Several types have these members in common; the tool calls are chat's (_postprocess_messages, renderers/chat_utils).
//
//nolint:gochecknoglobals // immutable tables
var (
	chatText = members{
		"text": text, "id": text, "index": number, "annotations": list, "logprobs": list, "citations": list, "cache_control": object,
		"prompt_cache_breakpoint": object,
	}
	claudeMessage = members{
		"role": text, "content": text | parts, "id": text, "model": text, "stop_reason": text, "stop_sequence": text, "usage": object,
	}
	responsesMessage = members{"role": text, "content": text | parts, "id": text, "status": text, "phase": text}
	responsesText    = members{"text": text, "parsed": anything, "annotations": list, "logprobs": list, "prompt_cache_breakpoint": object}

	toolCall       = members{"id": text, "index": number, "function": function, "cache_control": object}
	toolCalls      = map[string]members{"": toolCall, "function": toolCall}
	calledFunction = map[string]members{"": {"name": text, "arguments": text | object, "parsed_arguments": anything}}
)

// plainItem reports whether the table lists all of a message or an input item. pydantic takes null for absent.
func (a API) plainItem(item rawjson.Element) bool {
	var kind []byte
	for m := range item.Members() {
		if string(m.Name()) == "type" && m.IsText() {
			kind = unquoted(m.Value)
			break
		}
	}
	listed, ok := plainText[a].messages[string(kind)]
	for m := range item.Members() {
		ok = ok && (rawjson.IsNull(m.Value) || a.lists(listed, kind, m.Name(), m.Value))
	}
	return ok
}

func (a API) plainObject(kinds map[string]members, s *rawjson.Scanner) error {
	var kind []byte
	for m, value := range rawjson.Members(s.Data[s.Pos:]) {
		if m.Named("type") {
			kind = unquoted(value)
			break
		}
	}
	listed, ok := kinds[string(kind)]
	if !ok {
		return errRefused
	}
	return s.Members(func(m rawjson.Member) error {
		if err := s.Skip(); err != nil {
			return err
		}
		if name, _ := rawjson.Unescape(m.Key); !a.lists(listed, kind, name, s.Data[m.Value:s.Pos]) {
			return errRefused
		}
		return nil
	})
}

var errRefused = errors.New("refused")

// lists reports whether an object of a type may have a member. All values of a repeated name count. In a content part a key counts even if its
// value is null (has_non_text_content).
func (a API) lists(listed members, kind, name, value []byte) bool {
	if string(name) == "type" {
		return value[0] == '"' && bytes.Equal(unquoted(value), kind)
	}
	may, ok := listed[string(name)]
	return ok && a.fits(may, value)
}

func unquoted(value []byte) []byte {
	if rawjson.Kind(value) != '"' {
		return nil
	}
	text, _ := rawjson.Unescape(value[1 : len(value)-1])
	return text
}

func (a API) fits(may types, value []byte) bool {
	switch value[0] {
	case 'n':
		return true
	case '"':
		return may&text != 0
	case 't', 'f':
		return may&flag != 0
	case '{':
		return may&object != 0 || may&function != 0 && a.plainObject(calledFunction, &rawjson.Scanner{Data: value}) == nil
	case '[':
		return may&list != 0 || may&parts != 0 && a.plainList(plainText[a].parts, value) || may&calls != 0 && a.plainList(toolCalls, value)
	}
	return may&number != 0
}

// plainList allows texts only among chat's content parts.
func (a API) plainList(kinds map[string]members, list []byte) bool {
	s := rawjson.Scanner{Data: list}
	return s.Elements(func() error {
		if s.Peek() == '"' && a == Chat {
			return s.Skip()
		}
		return a.plainObject(kinds, &s)
	}) == nil
}
