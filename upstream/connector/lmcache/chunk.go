package lmcache

import (
	"bytes"
	"errors"
	"strconv"

	"carryover/sse/rawjson"
)

// continuation makes the client's answer from decode's answer, which continues after the first token. It belongs to one answer.
type continuation struct {
	*shape
	first  first
	stream bool
}

// errStreamed is for a whole answer where a stream was asked for: the first token, which the client has already, does not fit in.
var errStreamed = errors.New("decode's answer to a stream is none")

// unreadable replaces an event that is no chunk of a text completion. It has the form of vLLM's own errors inside of a stream
// (serve/exception_handling). If the event were passed on as it is, the client would miss text without notice.
const unreadable = `{"error":{"message":"an event of the engine can't be read","type":"InternalServerError","param":null,"code":500}}`

// Event rewrites decode's chunk as a chunk after the first token. An event without choices, such as an error, keeps its content.
func (c *continuation) Event(data []byte) []byte {
	chunk, err := rawjson.ParseObject(data)
	switch {
	case err != nil || !c.stream:
		return []byte(unreadable)
	case chunk.Get("choices") == nil || !rawjson.IsNull(chunk.Get("error")):
		return oneLine(bytes.Clone(data))
	}
	out, ok := c.chunk(&chunk, &c.first)
	if !ok {
		return []byte(unreadable)
	}
	return out
}

// Body returns decode's answer with the first token put before it.
func (c *continuation) Body(body []byte) ([]byte, error) {
	answer, err := rawjson.ParseObject(body)
	switch {
	case err != nil:
		return nil, err
	case !rawjson.IsNull(answer.Get("error")):
		return body, nil
	case c.stream:
		return nil, errStreamed
	}
	out, ok := c.answer(&answer, &c.first)
	if !ok {
		return nil, errUnreadable
	}
	return out, nil
}

// chunk makes the client's chunk from a chunk of a text completion. behind is the first token that comes before the chunk, nil if the
// chunk itself has the first token.
func (s *shape) chunk(chunk *rawjson.Object, behind *first) (out []byte, ok bool) {
	var o object
	for name, value := range chunk.Members() {
		switch string(name) {
		case "id":
			value = s.id
		case "object":
			if s.chat {
				value = []byte(`"chat.completion.chunk"`)
			}
		case "created":
			value = s.created
		case "model":
			value = s.model
		case "choices":
			if value, ok = s.choices(value, behind); !ok {
				return nil, false
			}
		case "usage":
			value = usage(value, behind)
		}
		o.add(string(name), value)
	}
	return oneLine(o.end()), true
}

// choices makes the client's choices from the choices of a chunk, which has none or one.
func (s *shape) choices(raw []byte, behind *first) (out []byte, ok bool) {
	if isList(raw) && rawjson.IsEmpty(raw) {
		return raw, true
	}
	choice, ok := onlyChoice(raw)
	if !ok {
		return nil, false
	}
	ended := !rawjson.IsNull(choice.Get("finish_reason"))
	var o object
	for name, value := range choice.Members() {
		known := string(name)
		switch {
		case known == "text" && s.chat:
			var delta object
			delta.add("content", value)
			known, value = "delta", delta.end()
		case known == "logprobs" && s.chat:
			value = s.chatLogprobs(value)
		case known == "logprobs":
			value = shifted(value, behind)
		case known == "prompt_token_ids" && s.chat, known == "stop_reason" && s.chat && !ended:
			continue // the chunk with the role has the ids; a chat's stop_reason comes with the end of the answer
		case known == "prompt_token_ids" && behind != nil:
			value = nil // the head has the ids
		}
		o.add(known, value)
	}
	return list(o.end()), true
}

// usage corrects decode's counts: decode counts the first token as a token of the prompt.
func usage(raw []byte, behind *first) []byte {
	o, err := rawjson.ParseObject(raw)
	if err != nil || behind == nil {
		return raw
	}
	prompt, ok := rawjson.Integer(o.Get("prompt_tokens"))
	completion, counted := rawjson.Integer(o.Get("completion_tokens"))
	if !ok || !counted || prompt < 1 {
		return raw
	}
	var edits rawjson.Edits
	edits.Set("prompt_tokens", strconv.AppendInt(nil, int64(prompt-1), 10))
	edits.Set("completion_tokens", strconv.AppendInt(nil, int64(completion+1), 10))
	return o.Rewrite(edits)
}
