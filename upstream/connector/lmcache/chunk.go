package lmcache

import (
	"bytes"
	"errors"
	"strconv"

	"carryover/sse/rawjson"
)

// continuation makes the client's answer of decode's, which goes on behind the first token. It belongs to one answer.
type continuation struct {
	*shape
	first  first
	stream bool
}

// errStreamed is an answer in another form than it was asked for, in which the first token has no place.
var errStreamed = errors.New("decode's answer to a stream is none")

// unreadable is what the client gets for an event that is no chunk of a text completion, in the form of vLLM's own errors inside of
// a stream (serve/exception_handling). As it came, it would be text that is missing.
const unreadable = `{"error":{"message":"an event of the engine can't be read","type":"InternalServerError","param":null,"code":500}}`

// Event returns decode's chunk as one behind the first token. What has no choices, as errors have none, is left as it is.
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

// Body returns decode's answer with the first token before it.
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

// chunk makes the client's chunk of one of a text completion, which comes behind a first token; nil if it has that itself.
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

// choices makes the client's choices of those of a chunk: none, or the only one.
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
			continue // the role's chunk has the ids; a chat's stop_reason comes with its end
		case known == "prompt_token_ids" && behind != nil:
			value = nil // the head has them
		}
		o.add(known, value)
	}
	return list(o.end()), true
}

// usage corrects the counts of decode, to which the first token is one of the prompt.
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
