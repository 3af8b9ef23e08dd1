package answer

import (
	"bytes"

	"github.com/tidwall/gjson"

	"carryover/sse"
	"carryover/sse/rawjson"
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
		return a.open(gjson.GetBytes(ev.Data, "message.id").String())
	case "message_delta":
		d.ended(a, gjson.ParseBytes(ev.Data), "delta.")
		a.tellCached(ev, "usage")
		a.finishes()
	case "message_stop":
		a.finishes()
		a.over = true
	case "error":
		return a.breaks(gjson.GetBytes(ev.Data, "error"))
	case "":
		if failure := gjson.GetBytes(ev.Data, "error"); failure.IsObject() {
			return a.breaks(failure)
		}
	}
	return a.goOn()
}

// ended reads the stop reason and the usage. in is the path of the stop reason: "delta." in an event, "" in a whole answer.
func (messagesDialect) ended(a *Reader, message gjson.Result, in string) {
	switch reason := message.Get(in + "stop_reason").String(); reason {
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
	if message.Get(in+"stop_sequence").Type == gjson.String {
		a.stopReason = true
	}
	counts := message.Get("usage")
	input, output := counts.Get("input_tokens"), counts.Get("output_tokens")
	if input.Type != gjson.Number || output.Type != gjson.Number {
		return
	}
	read := counts.Get("cache_read_input_tokens")
	a.usage.Prompt = int(input.Int() + read.Int() + counts.Get("cache_creation_input_tokens").Int())
	a.usage.Completion = int(output.Int())
	a.totalled = true
	if read.Type == gjson.Number {
		a.usage.Cached = int(read.Int())
	}
}

// whole reads a whole message, and returns it without kv_transfer_params unless the client may see them.
func (d messagesDialect) whole(a *Reader, body []byte) []byte {
	rest, params, found := rawjson.Cut(body, ParamsMember)
	if found && string(params) != "null" {
		a.params = params
	}
	if !rawjson.Valid(body) {
		a.ineligible = Unparsable
		return rest
	}
	message := gjson.ParseBytes(body)
	if failure := message.Get("error"); failure.IsObject() {
		a.fails(failure)
		return rest
	}
	if id := message.Get("id").String(); id != "" {
		a.belongs(id)
	}
	d.ended(a, message, "")
	return a.leg.Cached.whole(a.leg.API, rest)
}

var _ dialect = messagesDialect{}
