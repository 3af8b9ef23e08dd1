// Package apierror decides what clients learn of a failure: it maps errors to a status, a code and a message, in the shape that clients of
// each API know. Nothing that it returns has hosts or addresses of engines, or Go's error strings.
package apierror

import (
	"encoding/json"
	"net/http"
	"strings"

	"carryover/server/record"
	"carryover/server/request"
	"carryover/sse"
	"carryover/upstream/body"
)

// Error is an error in the form that clients see: OpenAI's error object and a status.
type Error struct {
	Status     int    `json:"-"`
	RetryAfter string `json:"-"`
	Message    string `json:"message"`
	Type       string `json:"type"`
	Param      any    `json:"param"` // string or null
	Code       string `json:"code"`
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// marshal returns the JSON of a value of strings and numbers, which always has one.
func marshal(value any) []byte {
	text, _ := json.Marshal(value)
	return text
}

// BadRequest returns the error for a wrong member of a request, param, or for the whole request where param is "".
func BadRequest(param, code, message string) *Error {
	e := &Error{Status: http.StatusBadRequest, Message: message, Type: "invalid_request_error", Code: code}
	if param != "" {
		e.Param = param
	}
	return e
}

// Refused returns the error for a request that would fail again.
func Refused(status int, code, message string) *Error {
	return &Error{Status: status, Message: message, Type: "invalid_request_error", Code: code}
}

// Unavailable returns the error for a request that may succeed in a second.
func Unavailable(code, message string) *Error {
	return &Error{Status: http.StatusServiceUnavailable, RetryAfter: "1", Message: message, Type: "server_error", Code: code}
}

// maxModelName bounds how many bytes of a client's model name an error repeats.
const maxModelName = 256

// NoModel returns the error of a turn whose model no instance serves, in vLLM's words (entrypoints/openai/models/serving.py).
func NoModel(model string) *Error {
	model = strings.ToValidUTF8(model[:min(len(model), maxModelName)], "")
	return &Error{
		Status: http.StatusNotFound, Message: "The model `" + model + "` does not exist.", Type: "NotFoundError",
		Param: "model", Code: "model_not_found",
	}
}

// Write answers with the error in the shape of an API.
func (e *Error) Write(w http.ResponseWriter, api body.API) {
	w.Header().Del("Content-Length")
	w.Header().Set("Content-Type", "application/json")
	if e.RetryAfter != "" {
		w.Header().Set("Retry-After", e.RetryAfter)
	}
	if e.Code == "unsupported_encoding" { // RFC 9110, section 12.5.3
		w.Header().Set("Accept-Encoding", request.Codings)
	}
	w.WriteHeader(e.Status)
	_, _ = w.Write(e.Body(api)) // a failure means that the client has left
}

// Body returns the JSON of an error in the form that clients of an API know: OpenAI's error object, or on Messages Anthropic's
// {"type":"error","error":{"type","message"}}, whose types are a small closed set (docs.anthropic.com, errors).
func (e *Error) Body(api body.API) []byte {
	if api != body.Messages {
		return marshal(map[string]*Error{"error": e})
	}
	type detail struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	}
	return marshal(struct {
		Type  string `json:"type"`
		Error detail `json:"error"`
	}{"error", detail{anthropicType(e.Status), e.Message}})
}

// Event returns an error as the last event of an API's stream. before is the number of events sent before it.
func (e *Error) Event(api body.API, before int64) []byte {
	switch api {
	case body.Messages:
		return sse.AppendError([]byte("event: error\n"), e.Body(api))
	case body.Responses: // ResponseErrorEvent of OpenAI's API
		return sse.AppendError([]byte("event: error\n"), marshal(struct {
			Type     string `json:"type"`
			Code     string `json:"code"`
			Message  string `json:"message"`
			Param    any    `json:"param"`
			Sequence int64  `json:"sequence_number"`
		}{"error", e.Code, e.Message, e.Param, before}))
	}
	return sse.AppendError(nil, e.Body(api))
}

// anthropicType returns Anthropic's error type for a status.
func anthropicType(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusServiceUnavailable:
		return "overloaded_error"
	case http.StatusGatewayTimeout:
		return "timeout_error"
	}
	if status >= http.StatusInternalServerError {
		return "api_error"
	}
	return "invalid_request_error"
}

// Code is the member code of an error that clients get.
type Code struct {
	Name   string
	Status int // of its answer; an engine's own status where it is 0
	Means  string
}

// Codes returns all codes, in the order of their status.
func Codes() []Code { return codes }

//nolint:gochecknoglobals // immutable table
var codes = []Code{
	{"bad_request", http.StatusBadRequest, "the body is no JSON object, or a member that Carryover reads is wrong"},
	{"invalid_type", http.StatusBadRequest, "a member has another type than it must have"},
	{"invalid_conversation_id", http.StatusBadRequest, "a conversation's name is neither a string of at most 512 bytes nor a whole number"},
	{"invalid_tenant", http.StatusBadRequest, "the header of `--tenant-header` is there twice"},
	{"invalid_credential", http.StatusBadRequest, "there are two `Authorization` or `x-api-key` lines"},
	{"unsupported", http.StatusBadRequest, "responses are not stored: send the whole history"},
	{"unsupported_parameter", http.StatusBadRequest, "a member that only the proxy may set (`kv_transfer_params`), or that needs stored responses"},
	{"invalid_request", 0, "the engine refused the request (400, 404, 413 or 422), with its message"},
	{"invalid_api_key", 0, "engines refuse the key of the request, which `--forward-authorization` sends on (401 or 403)"},
	{"prefiller_not_allowed", http.StatusForbidden, "`x-prefiller-host-port` names an address that `--prefiller-allow` does not"},
	{"not_found", http.StatusNotFound, "the endpoint is unknown"},
	{"model_not_found", http.StatusNotFound, "no instance serves the model"},
	{"method_not_allowed", http.StatusMethodNotAllowed, "the endpoint is asked with another method; `Allow` names the right one"},
	{"request_timeout", http.StatusRequestTimeout, "the body did not come in time"},
	{"request_too_large", http.StatusRequestEntityTooLarge, "the body is larger than `--max-body-bytes`, or a hundred times as large as it came"},
	{"unsupported_media_type", http.StatusUnsupportedMediaType, "the body is no `application/json`"},
	{"unsupported_encoding", http.StatusUnsupportedMediaType, "the body is compressed in another way than `Accept-Encoding` lists"},
	{"tenant_limit", http.StatusTooManyRequests, "the tenant has `--max-per-tenant` turns already"},
	{"rate_limited", http.StatusTooManyRequests, "the engines answered 429"},
	{"internal", http.StatusInternalServerError, "a fault of Carryover; the log has it"},
	{"prefill_failed", http.StatusBadGateway, "the prefill leg failed"},
	{"decode_failed", http.StatusBadGateway, "the decode leg failed"},
	{"bad_prefill_answer", http.StatusBadGateway, "prefill answered what can't be read"},
	{"bad_decode_answer", http.StatusBadGateway, "decode answered what can't be read"},
	{"stream_limit", http.StatusBadGateway, "the answer is longer than Carryover takes"},
	{"upstream_auth", http.StatusBadGateway, "engines refuse Carryover's key (`OPENAI_API_KEY`)"},
	{"prefill_unavailable", http.StatusServiceUnavailable, "no prefill instance can be reached"},
	{"decode_unavailable", http.StatusServiceUnavailable, "no decode instance can be reached"},
	{"queue_full", http.StatusServiceUnavailable, "`--max-queue` turns wait already"},
	{"queue_timeout", http.StatusServiceUnavailable, "the turn waited for `--queue-timeout`"},
	{"overloaded", http.StatusServiceUnavailable, "bodies in flight, and answers that are held, take `--max-inflight-bytes`, or one client's share of it"},
	{"server_shutting_down", http.StatusServiceUnavailable, "the process ends"},
	{"prefill_timeout", http.StatusGatewayTimeout, "prefill did not answer within `--prefill-timeout`, and `--prefill-failure` is `error`"},
	{"decode_timeout", http.StatusGatewayTimeout, "decode did not begin a stream within `--first-byte-timeout`, or did not give a whole answer within `--answer-timeout`"},
	{"stream_idle_timeout", http.StatusGatewayTimeout, "decode sent nothing for `--idle-timeout`"},
	{"client_gone", record.StatusClientGone, "the client closed the connection; only the log has it"},
}
