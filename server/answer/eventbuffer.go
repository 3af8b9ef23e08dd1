package answer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/tidwall/gjson"

	"carryover/sse/rawjson"
	"carryover/upstream/body"
)

// EventBuffer writes the event stream that vLLM 0.32 would send for an answer if all of its tokens came at once. The order of keys and the
// nulls follow chat_completion/serving.py and completion/serving.py in entrypoints/openai; values are copied from the answer. Members that
// EventBuffer does not know are left out.
type EventBuffer struct {
	API          body.API
	IncludeUsage bool
	Continuous   bool   // usage on every chunk
	Cached       bool   // that usage tells cached tokens
	Params       string // kv_transfer_params for the client to see, "" for none

	answer, choice, usage gjson.Result
	out                   []byte
	events                int64
}

// Why no stream can be made of a whole answer.
var (
	// ErrNotJSON says that the answer is not JSON.
	ErrNotJSON  = errors.New("the answer is not JSON")
	errNoChoice = errors.New("answer is not one finished choice")
)

// Options reads the stream_options of the client's request, nil for none.
func (b *EventBuffer) Options(options []byte) {
	b.IncludeUsage = gjson.GetBytes(options, "include_usage").Bool()
	b.Continuous = b.IncludeUsage && gjson.GetBytes(options, "continuous_usage_stats").Bool()
}

// Stream returns the events that were written, and how many they are.
func (b *EventBuffer) Stream() (stream []byte, events int64) { return b.out, b.events }

// Write writes the events of a whole answer. If it fails, it has written none.
func (b *EventBuffer) Write(answer []byte) error {
	if !rawjson.Valid(answer) { // withoutNulls recurses; Valid bounds the depth
		return ErrNotJSON
	}
	var line bytes.Buffer // an event's data must not have line ends
	if err := json.Compact(&line, answer); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	b.answer = gjson.ParseBytes(line.Bytes())
	b.usage = b.answer.Get("usage")
	choices := b.answer.Get("choices").Array()
	if len(choices) != 1 || unlessNull(b.answer.Get("error")) != "" {
		return errNoChoice
	}
	b.choice = choices[0]
	message, text := b.choice.Get("message"), b.choice.Get("text")
	if b.choice.Get("finish_reason").Type != gjson.String || b.API == body.Chat && !message.IsObject() || b.API == body.Text && text.Type != gjson.String {
		return errNoChoice
	}
	if b.API == body.Chat {
		b.chat(message)
	} else {
		b.text(text)
	}
	if b.IncludeUsage && b.usage.IsObject() {
		b.chunk("", "usage", withoutNulls(b.usage), "system_fingerprint", unlessNull(b.answer.Get("system_fingerprint")),
			"metrics", withoutNulls(b.answer.Get("metrics")))
	}
	b.event("[DONE]")
	return nil
}

// chat writes the role, one chunk for each kind of content, and the end. The chunk with the text carries the tokens of the answer; if there
// is no text, the last chunk does.
func (b *EventBuffer) chat(message gjson.Result) {
	role := object("index", "0", "delta", object("role", message.Get("role").Raw, "content", `""`), "logprobs", "null", "finish_reason", "null")
	b.chunk(role, "usage", b.usageSoFar(false),
		"prompt_token_ids", b.answer.Get("prompt_token_ids").Raw, "prompt_text", b.answer.Get("prompt_text").Raw)

	// A stream uses reasoning_content where a whole answer does (before vLLM #33402).
	reasoning := object("reasoning", unlessEmpty(message.Get("reasoning")), "reasoning_content", unlessEmpty(message.Get("reasoning_content")))
	if reasoning != "{}" {
		b.chatChunk(reasoning, false, false)
	}
	content, calls := unlessEmpty(message.Get("content")), message.Get("tool_calls").Array()
	if content != "" {
		b.chatChunk(object("content", content), true, false)
	}
	for i, call := range calls {
		index := strconv.Itoa(i)
		b.toolChunk(object("id", call.Get("id").Raw, "type", call.Get("type").Raw, "index", index, "function", object("name", call.Get("function.name").Raw)))
		if arguments := unlessEmpty(call.Get("function.arguments")); arguments != "" {
			b.toolChunk(object("index", index, "function", object("arguments", arguments)))
		}
	}
	// Without a parser the last delta of a stream has text, which may be empty. A parser that has nothing left sends an empty delta.
	end := object("content", `""`)
	if reasoning != "{}" || len(calls) > 0 {
		end = "{}"
	}
	b.chatChunk(end, content == "", true)
}

func (b *EventBuffer) toolChunk(call string) {
	b.chatChunk(object("tool_calls", "["+call+"]"), false, false)
}

// chatChunk writes a chunk that may carry all tokens of the answer, and may be the
// last of its choice.
func (b *EventBuffer) chatChunk(delta string, carries, last bool) {
	logprobs, ids := b.tokens(carries)
	if last {
		b.finish(object("index", "0", "delta", delta, "logprobs", logprobs,
			"finish_reason", b.choice.Get("finish_reason").Raw, "stop_reason", b.choice.Get("stop_reason").Raw, "token_ids", ids))
		return
	}
	b.chunk(object("index", "0", "delta", delta, "logprobs", logprobs, "finish_reason", "null", "token_ids", ids), "usage", b.usageSoFar(true))
}

// text writes the chunks of a text completion: its text, if any, and the end.
func (b *EventBuffer) text(text gjson.Result) {
	logprobs, ids := b.tokens(true)
	prompt := b.choice.Get("prompt_token_ids").Raw
	if unlessEmpty(text) != "" {
		b.chunk(object("index", "0", "text", text.Raw, "logprobs", logprobs, "finish_reason", "null", "stop_reason", "null",
			"prompt_token_ids", prompt, "token_ids", ids), "usage", b.usageSoFar(true))
		logprobs, ids = b.tokens(false)
		if prompt != "" {
			prompt = "null"
		}
	}
	b.finish(object("index", "0", "text", `""`, "logprobs", logprobs,
		"finish_reason", b.choice.Get("finish_reason").Raw, "stop_reason", b.choice.Get("stop_reason").Raw,
		"prompt_token_ids", prompt, "token_ids", ids))
}

// tokens returns logprobs and token_ids of a chunk that carries all tokens or none. A client that asked for ids gets a list in both cases.
func (b *EventBuffer) tokens(carries bool) (logprobs, ids string) {
	given := b.choice.Get("token_ids")
	switch {
	case carries:
		return orNull(b.choice.Get("logprobs")), given.Raw
	case given.IsArray():
		return "null", "[]"
	}
	return "null", given.Raw
}

// usageSoFar returns the usage of a chunk under continuous_usage_stats. Chunks before the text count none of the answer's tokens, later
// chunks count all of them. vLLM reports reasoning tokens in chat only.
func (b *EventBuffer) usageSoFar(begun bool) string {
	if !b.Continuous || !b.usage.IsObject() {
		return ""
	}
	prompt, total, completion := b.usage.Get("prompt_tokens").Raw, b.usage.Get("total_tokens").Raw, b.usage.Get("completion_tokens").Raw
	details := b.usage.Get("completion_tokens_details")
	told := details.Raw
	if b.API == body.Text {
		told = ""
	}
	if !begun {
		total, completion = prompt, "0"
		if details.IsObject() {
			told = `{"reasoning_tokens":0}`
		}
	}
	cached := ""
	if b.Cached {
		cached = object("cached_tokens", b.usage.Get("prompt_tokens_details.cached_tokens").Raw)
	}
	return object("prompt_tokens", prompt, "total_tokens", total, "completion_tokens", completion, "completion_tokens_details", told,
		"prompt_tokens_details", cached)
}

// finish writes the chunk that ends the choice. The fingerprint belongs on the stream's last chunk, which is another one if the usage
// follows. kv_transfer_params are where vLLM #40186 puts them.
func (b *EventBuffer) finish(choice string) {
	fingerprint := unlessNull(b.answer.Get("system_fingerprint"))
	if b.IncludeUsage {
		fingerprint = ""
	}
	b.chunk(choice, "usage", b.usageSoFar(true), "system_fingerprint", fingerprint, "kv_transfer_params", b.Params)
}

// chunk writes one chunk with one choice, or without one.
func (b *EventBuffer) chunk(choice string, more ...string) {
	kind := `"text_completion"`
	if b.API == body.Chat {
		kind = `"chat.completion.chunk"`
	}
	b.event(object(append([]string{
		"id", b.answer.Get("id").Raw, "object", kind, "created", b.answer.Get("created").Raw, "model", b.answer.Get("model").Raw,
		"choices", "[" + choice + "]",
	}, more...)...))
}

func (b *EventBuffer) event(data string) {
	b.out = append(b.out, "data: "...)
	b.out = append(b.out, data...)
	b.out = append(b.out, "\n\n"...)
	b.events++
}

// object returns a JSON object. members alternate between names and JSON values; a member with the value "" is left out.
func object(members ...string) string {
	out := []byte{'{'}
	for i := 0; i+1 < len(members); i += 2 {
		if members[i+1] == "" {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, '"'), members[i]...), `":`...)
		out = append(out, members[i+1]...)
	}
	return string(append(out, '}'))
}

// orNull returns the JSON of a value, null if it is absent.
func orNull(v gjson.Result) string {
	if v.Exists() {
		return v.Raw
	}
	return "null"
}

// unlessNull returns the JSON of a value, "" if it is null or absent.
func unlessNull(v gjson.Result) string {
	if v.Type == gjson.Null {
		return ""
	}
	return v.Raw
}

// unlessEmpty returns the JSON of a string, "" if it is empty or not a string.
func unlessEmpty(v gjson.Result) string {
	if v.Type != gjson.String || v.Raw == `""` {
		return ""
	}
	return v.Raw
}

// withoutNulls returns the JSON of a value without members that are null. It returns "" if the value itself is null or absent. vLLM writes
// the usage chunk in this way (exclude_none).
func withoutNulls(v gjson.Result) string {
	if !v.IsObject() {
		return unlessNull(v)
	}
	out := []byte{'{'}
	v.ForEach(func(name, value gjson.Result) bool {
		if kept := withoutNulls(value); kept != "" {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(append(append(out, name.Raw...), ':'), kept...)
		}
		return true
	})
	return string(append(out, '}'))
}
