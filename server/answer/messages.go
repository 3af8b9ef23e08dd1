package answer

import (
	"bytes"

	"carryover/sse"
	"carryover/sse/rawjson"
	"carryover/upstream"
)

// messagesDialect reads answers of the Messages API (vllm/entrypoints/anthropic/serving.py, 0.32). A stream has message_start, which comes
// before the KV is loaded; blocks; message_delta with the stop reason, the usage and, if the plug-in is there, kv_transfer_params; and
// message_stop.
type messagesDialect struct{}

// judge parses the first events and the last. Of those between it looks only at the beginning.
func (d messagesDialect) judge(a *Reader, ev sse.Event) sse.Verdict {
	if rawjson.Begins(ev.Data, `{"type":"content_block_`) && a.passed {
		return sse.Forward
	}
	if ev.Member != nil && !a.done {
		a.params = bytes.Clone(ev.Member)
	}
	if !rawjson.Valid(ev.Data) {
		a.ineligible = Unparsable
	}
	switch typeOf(ev) {
	case "message_start":
		a.tellCached(ev, "message", "usage")
		return a.open(upstream.AnswerID(rawjson.Get(ev.Data, "message", "id")))
	case "message_delta":
		d.ended(a, ev.Data, rawjson.Get(ev.Data, "delta"))
		a.tellCached(ev, "usage")
		a.finishes()
	case "message_stop":
		a.finishes()
		a.over = true
	case "error":
		return a.breaks(rawjson.Get(ev.Data, "error"))
	case "":
		if failure := rawjson.Get(ev.Data, "error"); rawjson.Kind(failure) == '{' {
			return a.breaks(failure)
		}
	}
	return a.goOn()
}

// ended reads the usage of a message or of its last event, and the stop reason, which delta has in an event and the message itself in a whole
// answer.
func (messagesDialect) ended(a *Reader, message, delta []byte) {
	switch reason := rawjson.GetText(delta, "stop_reason"); reason {
	case "end_turn":
		a.finish = "stop"
	case "stop_sequence":
		a.finish, a.stopReason = "stop", true
	case "max_tokens":
		a.finish = "length"
	case "tool_use":
		a.finish = "tool_calls"
	default:
		a.finish = reason
	}
	if rawjson.Kind(rawjson.Get(delta, "stop_sequence")) == '"' {
		a.stopReason = true
	}
	counts := rawjson.Get(message, "usage")
	input, ok := rawjson.GetInt(counts, "input_tokens")
	output, both := rawjson.GetInt(counts, "output_tokens")
	if !ok || !both {
		return
	}
	created, _ := rawjson.GetInt(counts, "cache_creation_input_tokens")
	read, cached := rawjson.GetInt(counts, "cache_read_input_tokens")
	a.usage.Prompt, a.usage.Completion, a.totalled = input+read+created, output, true
	if cached {
		a.usage.Cached = read
	}
}

// whole reads a whole message.
func (d messagesDialect) whole(a *Reader, body []byte) []valueEdit {
	edits := a.cutParams(body)
	if !rawjson.Valid(body) {
		a.ineligible = Unparsable
		return edits
	}
	if failure := rawjson.Get(body, "error"); rawjson.Kind(failure) == '{' {
		a.fails(failure)
		return edits
	}
	if id := upstream.AnswerID(rawjson.Get(body, "id")); id != "" {
		a.belongs(id)
	}
	d.ended(a, body, body)
	return append(edits, a.leg.Cached.whole(a.leg.API, body)...)
}

var _ dialect = messagesDialect{}
