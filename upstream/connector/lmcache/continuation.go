package lmcache

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"carryover/sse/rawjson"
	"carryover/upstream/body"
)

// continuation makes the client's answer from decode's, which continues after the first token. It belongs to one answer.
type continuation struct {
	first
	chat, stream   bool
	id             []byte // JSON, as are created, model and ids
	created, model []byte
	ids            []byte // ids of the prompt, nil unless the client wants ids
	running        bool   // the stream has its usage in each event
	prompt         int    // in tokens
	top            int    // how many likeliest tokens a chat shows for each token, -1 for all
}

func (a *attempt) continuation(id string, f first) *continuation {
	c := &continuation{
		first: f, chat: a.Request.API == body.Chat, stream: a.Request.Stream, created: f.body.Get("created"), model: f.body.Get("model"),
		top: a.top(), prompt: len(a.sent),
	}
	if id == "" {
		id = "cmpl-" + a.RequestID
	}
	if c.chat {
		id = "chatcmpl-" + strings.TrimPrefix(id, "cmpl-") // both APIs put their prefix before the request id
	}
	c.id = rawjson.Quote(id)
	if _, ok := rawjson.Integer(c.created); !ok {
		c.created = []byte("0")
	}
	if !isText(c.model) {
		c.model = rawjson.Quote(a.Request.Model)
	}
	if a.Request.WantsTokenIDs() {
		c.ids = rawjson.AppendIDs(nil, a.sent)
	}
	if o, err := rawjson.ParseObject(a.Request.Member("stream_options")); err == nil {
		c.running = a.Request.WantsUsage() && string(o.Get("continuous_usage_stats")) == "true"
	}
	if !off(a.Request.Member("logprob_token_ids")) {
		c.top = -1
	}
	return c
}

// head returns the beginning of a stream, as vLLM 0.32 writes it: in a chat the role, then the first token.
func (c *continuation) head() []byte {
	var choice, chunk object
	kind, logprobs := "text_completion", c.first.choice.Get("logprobs")
	choice.add("index", []byte("0"))
	if c.chat {
		choice.add("delta", withContent(c.first.choice.Get("text")))
		kind, logprobs = "chat.completion.chunk", contents(c.content(logprobs))
	} else {
		choice.add("text", c.first.choice.Get("text"))
	}
	choice.add("logprobs", logprobs)
	choice.add("finish_reason", nil)
	if !c.chat { // a chat has these in the chunk with the role, or at its end
		choice.add("stop_reason", nil)
		choice.add("prompt_token_ids", c.ids)
	}
	choice.add("token_ids", c.tokenIDs())
	c.begin(&chunk, kind, list(choice.end()))
	c.count(&chunk, 1)
	if c.chat {
		return append(event(c.role()), event(chunk.end())...)
	}
	return event(chunk.end())
}

func (c *continuation) role() []byte {
	var chunk object
	c.begin(&chunk, "chat.completion.chunk", []byte(`[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]`))
	chunk.add("prompt_token_ids", c.ids)
	chunk.add("prompt_text", nil)
	c.count(&chunk, 0)
	return chunk.end()
}

func (c *continuation) begin(chunk *object, kind string, choices []byte) {
	chunk.add("id", c.id)
	chunk.add("object", rawjson.Quote(kind))
	chunk.add("created", c.created)
	chunk.add("model", c.model)
	chunk.add("choices", choices)
}

func (c *continuation) count(chunk *object, completion int) {
	if c.running {
		chunk.add("usage", fmt.Appendf(nil, `{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}`, c.prompt, c.prompt+completion, completion))
	}
}

func (c *continuation) tokenIDs() []byte {
	if c.ids == nil {
		return nil
	}
	return rawjson.AppendIDs(nil, []uint32{c.token})
}

func event(data []byte) []byte { return append(append([]byte("data: "), oneLine(data)...), "\n\n"...) }

// errStreamed: decode answered a stream in one piece, which can't take in the first token that the client already has.
var errStreamed = errors.New("decode did not answer with a stream")

// unreadable replaces an event that is no chunk of a text completion. It has the form of vLLM's own errors within a stream
// (serve/exception_handling). If the event were passed on, the client would miss text without notice.
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
			known, value = "delta", withContent(value)
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

func (c *continuation) choice(choice *rawjson.Object) []byte {
	var o object
	for name, value := range choice.Members() {
		known := string(name)
		switch known {
		case "text":
			first := c.first.choice.Get("text")
			value = slices.Concat(first[:len(first)-1], value[1:])
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
	return fmt.Appendf(nil, `{"role":"assistant","content":%s,"refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null}`, content)
}

var errUnreadable = errors.New("the answer is no text completion")
