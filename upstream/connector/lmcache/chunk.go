package lmcache

import (
	"bytes"
	"errors"
	"strconv"

	"carryover/sse/rawjson"
)

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
	out, ok := c.chunk(&chunk)
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
	out, ok := c.answer(&answer)
	if !ok {
		return nil, errUnreadable
	}
	return out, nil
}

// chunk makes the client's chunk from a chunk of a text completion.
func (c *continuation) chunk(chunk *rawjson.Object) (out []byte, ok bool) {
	choices, ok := c.choices(chunk.Get("choices"))
	if !ok {
		return nil, false
	}
	var o object
	for name, value := range chunk.Members() {
		o.add(string(name), c.member(string(name), value, "chat.completion.chunk", choices))
	}
	return oneLine(o.end()), true
}

// member returns the client's value of a member of decode's answer or chunk. chat is what a chat's object is called.
func (c *continuation) member(name string, value []byte, chat string, choices []byte) []byte {
	switch name {
	case "id":
		return c.id
	case "object":
		if c.chat {
			return rawjson.Quote(chat)
		}
	case "created":
		return c.created
	case "model":
		return c.model
	case "choices":
		return choices
	case "usage":
		return usage(value)
	}
	return value
}

// choices makes the client's choices from the choices of a chunk, which has none or one.
func (c *continuation) choices(raw []byte) (out []byte, ok bool) {
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
		case known == "text" && c.chat:
			var delta object
			delta.add("content", value)
			known, value = "delta", delta.end()
		case known == "logprobs" && c.chat:
			value = contents(c.content(value))
		case known == "logprobs":
			value = c.shifted(value)
		case known == "prompt_token_ids" && c.chat, known == "stop_reason" && c.chat && !ended:
			continue // the chunk with the role has the ids; a chat's stop_reason comes with the end of the answer
		case known == "prompt_token_ids":
			value = nil // the head has the ids
		}
		o.add(known, value)
	}
	return list(o.end()), true
}

// usage corrects decode's counts: decode counts the first token as a token of the prompt.
func usage(raw []byte) []byte {
	o, err := rawjson.ParseObject(raw)
	if err != nil {
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
