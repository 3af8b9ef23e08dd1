package server

import (
	"carryover/server/record"
	"carryover/server/request"
	"carryover/upstream/body"
)

// RequestHeaders returns the headers of a client that Carryover reads, besides those of HTTP and of known front ends and agents.
func RequestHeaders() []Term {
	return []Term{
		{"X-Conversation-Id", "names the conversation; so does X-Session-Id", ""},
		{"X-KV-Reuse", "`off`: this request neither looks for KV nor leaves any", ""},
		{request.TaskHeader, "not empty: the request is a task of the front end, such as a title; as `X-KV-Reuse: off`", ""},
		{request.FinalHeader, "`true`: no turn follows, and decode frees all that the conversation has pinned", ""},
		{"X-Request-Id", "the name of the turn in the log; one is made where there is none", ""},
		{"Authorization", "tells tenants apart, unless `--tenant-header` does; goes on with `--forward-authorization`", ""},
		{"X-Api-Key", "the same, as Anthropic's clients send it", ""},
		{request.PrefillerHeader, "names the prefill instance, with `--prefiller-allow`", ""},
		{"traceparent", "the trace to which the turn's spans belong; with tracestate", ""},
	}
}

// AnswerHeaders returns the headers that Carryover adds to answers.
func AnswerHeaders() []Term {
	return []Term{
		{"X-KV-Reuse", "`hit;tokens=…;read=…;age=…;proof=…;confirmed=…`, `miss;reason=…` or `off`", ""},
		{"X-KV-Path", "`" + record.WayPrefillDecode + ";tokens=…` or `" + record.WayDecodeOnly + ";reason=…;tokens=…`", ""},
		{"Server-Timing", "`queue`, `lookup`, `prefill`, and `ttft` of a stream or `answer` of a whole answer, in milliseconds", ""},
		{"X-Request-Id", "the name of the turn in the log; on `" + body.Messages.Path() + "` also as `request-id`", ""},
		{"Retry-After", "seconds, on 429 and 503", ""},
	}
}
