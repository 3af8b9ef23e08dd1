package answer

import (
	"bytes"

	"carryover/sse"
	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
)

// The readers of Messages and Responses; completion.go reads the completion endpoints. Events of these APIs have names, which their type repeats,
// and no [DONE] ends the stream.

func (a *Reader) named() bool { return a.leg.API == body.Messages || a.leg.API == body.Responses }

func typeOf(ev sse.Event) string { return rawjson.GetText(ev.Data, "type") }

// open decides on an event that comes before the KV is loaded. It waits for the next event, so that the turn can be tried again if the load fails.
func (a *Reader) open(id string) sse.Verdict {
	if id != "" && id != string(a.id) {
		a.belongs(id)
	}
	switch {
	case a.Foreign && !a.passed:
		return sse.Stop
	case a.passed:
		return sse.Forward
	}
	return sse.Await
}

// goOn notes the first event behind those that open the answer. It shows that decode has the KV.
func (a *Reader) goOn() sse.Verdict {
	if !a.Seen {
		a.Seen = true
		a.turn.Begun()
	}
	return sse.Forward
}

func (a *Reader) breaks(failure []byte) sse.Verdict {
	a.fails(failure)
	if !a.passed && a.turn.MayRestart() {
		return sse.Stop
	}
	return sse.Forward
}

func (a *Reader) finishes() {
	a.Seen, a.Done = true, true
	a.ends()
}

// judgeMessage decides on an event of the Messages API (vllm/entrypoints/anthropic/serving.py, 0.32). A stream has message_start, which comes
// before the KV is loaded; blocks; message_delta with the stop reason, the usage and, with the plug-in, kv_transfer_params; and message_stop. It
// parses the first events and the last, and looks only at the beginning of the others.
func (a *Reader) judgeMessage(ev sse.Event) sse.Verdict {
	if rawjson.Begins(ev.Data, `{"type":"content_block_`) && a.passed {
		return sse.Forward
	}
	if ev.Member != nil && !a.Done {
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
		a.readMessage(ev.Data, rawjson.Get(ev.Data, "delta"))
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

// readMessage gets the stop reason in delta from an event, in the message itself from a whole answer.
func (a *Reader) readMessage(message, delta []byte) {
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

func (a *Reader) wholeMessage(body []byte) []valueEdit {
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
	a.readMessage(body, body)
	return append(edits, a.leg.Cached.edits(a.leg.API, body, "usage")...)
}

// judgeResponse decides on an event of the Responses API (vllm/entrypoints/openai/responses/serving.py, 0.32). A stream has response.created and
// response.in_progress, which come before the KV is loaded; then items; then response.completed with the whole response, even if the response is
// incomplete. If loading fails, the engine cuts the connection behind the first two events. judgeResponse parses the first events and the last. It
// checks only that the others have no response and no error.
func (a *Reader) judgeResponse(ev sse.Event) sse.Verdict {
	if !bytes.Contains(ev.Data, []byte(`"response"`)) && !bytes.Contains(ev.Data, []byte(`\u`)) && a.passed && !bytes.Contains(ev.Data, []byte(`"error"`)) {
		return sse.Forward // a piece of an item
	}
	response := rawjson.Get(ev.Data, "response")
	for _, span := range a.hidden(ev.Data, true) {
		if !ev.Replace(span.From, span.To, []byte("null")) {
			return sse.Stop
		}
	}
	if !rawjson.Valid(ev.Data) {
		a.ineligible = Unparsable
	}
	switch typeOf(ev) {
	case "response.created", "response.in_progress":
		return a.open(upstream.AnswerID(rawjson.Get(response, "id")))
	case "response.completed", "response.incomplete":
		a.readResponse(response)
		a.tellCached(ev, "response", "usage")
		if a.Foreign && !a.passed {
			return sse.Stop
		}
		a.finishes()
		a.over = true
	case "response.failed":
		return a.breaks(rawjson.Get(response, "error"))
	case "error":
		return a.breaks(ev.Data)
	case "":
		if failure := rawjson.Get(ev.Data, "error"); rawjson.Kind(failure) == '{' {
			return a.breaks(failure)
		}
	}
	return a.goOn()
}

func (a *Reader) readResponse(response []byte) {
	if id := upstream.AnswerID(rawjson.Get(response, "id")); id != "" && id != string(a.id) {
		a.belongs(id)
	}
	if params := rawjson.Get(response, ParamsMember); rawjson.Kind(params) == '{' {
		a.params = bytes.Clone(params)
	}
	switch status := rawjson.GetText(response, "status"); {
	case status == "completed":
		a.finish = "stop"
		for item := range rawjson.Elements(rawjson.Get(response, "output")) {
			if rawjson.GetText(item, "type") == "function_call" {
				a.finish = "tool_calls"
			}
		}
	case status == "incomplete" && rawjson.GetText(response, "incomplete_details", "reason") == "max_output_tokens":
		a.finish = "length"
	default:
		a.finish = status
	}
	if a.params == nil && a.finish == "stop" && a.leg.Asks.Stops { // an answer that ends at a stop string looks like this (measured, 0.32)
		a.stopReason = true
	}
	counts := rawjson.Get(response, "usage")
	tell(&a.usage.Prompt, counts, "input_tokens")
	tell(&a.usage.Completion, counts, "output_tokens")
	tell(&a.usage.Cached, counts, "input_tokens_details", "cached_tokens")
	a.totalled = a.usage.Prompt >= 0 && a.usage.Completion >= 0
	if a.leg.Asks.IDs {
		prompt := upstream.RawMessageIDs(rawjson.Get(response, "input_messages"))
		if prompt == nil { // several messages, or none, do not tell which prompt was computed
			a.ineligible = "prompt_ids"
		}
		a.takes(a.leg.IDs.Add(prompt, upstream.RawMessageIDs(rawjson.Get(response, "output_messages"))))
	}
}

// hidden finds the values that the client must not see, in the response of an event or in a whole response.
func (a *Reader) hidden(data []byte, inEvent bool) (spans []rawjson.Span) {
	s := rawjson.Scanner{Data: data}
	var walk func(inside bool) error
	walk = func(inside bool) error {
		return s.Members(func(m rawjson.Member) error {
			if !inside && m.Named("response") && s.Peek() == '{' {
				return walk(true)
			}
			if err := s.Pass(); err != nil { // Pass also skips values that are nested too deeply to be read
				return err
			}
			ids := a.leg.Asks.Hidden && (m.Named("input_messages") || m.Named("output_messages"))
			if inside && (m.Named(ParamsMember) || ids) && string(data[m.Value:s.Pos]) != "null" {
				spans = append(spans, rawjson.Span{From: m.Value, To: s.Pos})
			}
			return nil
		})
	}
	s.Space()
	if walk(!inEvent) != nil {
		return nil // it is not JSON
	}
	return spans
}

func (a *Reader) wholeResponse(body []byte) []valueEdit {
	if !rawjson.Valid(body) {
		a.ineligible = Unparsable
		return nil
	}
	if failure := rawjson.Get(body, "error"); rawjson.Kind(failure) == '{' {
		a.fails(failure)
	}
	a.readResponse(body)
	return nulled(a.leg.Cached.edits(a.leg.API, body, "usage"), a.hidden(body, false))
}
