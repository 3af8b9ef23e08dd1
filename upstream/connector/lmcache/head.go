package lmcache

import (
	"fmt"
	"strconv"

	"github.com/tidwall/gjson"

	"carryover/sse/rawjson"
)

// head returns the beginning of a stream, as vLLM 0.32 writes it: in a chat the role, then the first token. whole says that the answer
// ends with this token.
func (s *shape) head(f *first, whole bool) ([]byte, error) {
	var choice, chunk object
	choice.add("index", []byte("0"))
	choice.add("text", f.choice.Get("text"))
	choice.add("logprobs", f.choice.Get("logprobs"))
	if whole {
		choice.add("finish_reason", f.choice.Get("finish_reason"))
		choice.add("stop_reason", f.choice.Get("stop_reason"))
	} else {
		choice.add("finish_reason", nil)
		choice.add("stop_reason", nil)
	}
	choice.add("prompt_token_ids", s.ids)
	choice.add("token_ids", s.tokenIDs(f))
	s.begin(&chunk, "text_completion", list(choice.end()))
	if whole && !s.counts {
		chunk.add("system_fingerprint", f.body.Get("system_fingerprint"))
	}
	s.count(&chunk, 1)
	text := chunk.end()
	if !s.chat {
		return event(text), nil
	}
	o, err := rawjson.ParseObject(text)
	if err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	data, ok := s.chunk(&o, nil)
	if !ok {
		return nil, errUnreadable
	}
	return append(event(s.role()), event(data)...), nil
}

// role returns the first chunk of a chat, which has the role.
func (s *shape) role() []byte {
	var chunk object
	s.begin(&chunk, "chat.completion.chunk", []byte(`[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]`))
	chunk.add("prompt_token_ids", s.ids)
	chunk.add("prompt_text", nil)
	s.count(&chunk, 0)
	return chunk.end()
}

// tail returns the end of a stream, where prefill has the whole answer.
func (s *shape) tail(f *first) (events []byte) {
	if s.counts {
		kind := "text_completion"
		if s.chat {
			kind = "chat.completion.chunk"
		}
		var chunk object
		s.begin(&chunk, kind, []byte("[]"))
		chunk.add("usage", withoutNulls(f.body.Get("usage")))
		if mark := f.body.Get("system_fingerprint"); !rawjson.IsNull(mark) {
			chunk.add("system_fingerprint", mark)
		}
		events = event(chunk.end())
	}
	return append(events, event([]byte("[DONE]"))...)
}

// begin writes the members that all chunks have.
func (s *shape) begin(chunk *object, kind string, choices []byte) {
	chunk.add("id", s.id)
	chunk.add("object", rawjson.Quote(kind))
	chunk.add("created", s.created)
	chunk.add("model", s.model)
	chunk.add("choices", choices)
}

// count writes the usage so far, if each chunk has it.
func (s *shape) count(chunk *object, completion int) {
	if !s.running {
		return
	}
	var usage object
	usage.add("prompt_tokens", strconv.AppendInt(nil, int64(s.prompt), 10))
	usage.add("total_tokens", strconv.AppendInt(nil, int64(s.prompt+completion), 10))
	usage.add("completion_tokens", strconv.AppendInt(nil, int64(completion), 10))
	chunk.add("usage", usage.end())
}

// tokenIDs returns a list with the id of the first token, or nil if the client wants no ids.
func (s *shape) tokenIDs(f *first) []byte {
	if s.ids == nil {
		return nil
	}
	return rawjson.AppendIDs(nil, []uint32{f.token})
}

// event returns the data as an event of a stream.
func event(data []byte) []byte { return append(append([]byte("data: "), oneLine(data)...), "\n\n"...) }

// withoutNulls returns an object without its members that are null, as vLLM writes the usage of a stream. It returns nil if raw is no
// object.
func withoutNulls(raw []byte) []byte {
	if len(raw) == 0 || raw[0] != '{' {
		return nil
	}
	var out object
	gjson.ParseBytes(raw).ForEach(func(key, value gjson.Result) bool {
		switch {
		case value.IsObject():
			out.add(key.String(), withoutNulls([]byte(value.Raw)))
		case value.Type != gjson.Null:
			out.add(key.String(), []byte(value.Raw))
		}
		return true
	})
	return out.end()
}
