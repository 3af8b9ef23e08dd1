// Package apierror decides what clients learn of a failure: it maps errors to a status, a code and a message, in the shape of each API.
// Nothing that it returns has hosts or addresses of engines, or Go's error strings.
package apierror

import (
	"encoding/json"
	"net/http"
	"strings"

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

func (e *Error) Error() string { return e.Message }

func marshal(value any) []byte {
	text, _ := json.Marshal(value)
	return text
}

// BadRequest is the error for a wrong member, param, or for the whole request where param is "".
func BadRequest(param, code, message string) *Error {
	e := Refused(http.StatusBadRequest, code, message)
	if param != "" {
		e.Param = param
	}
	return e
}

// Refused is the error for a request that would fail again.
func Refused(status int, code, message string) *Error {
	return failure(status, "invalid_request_error", code, message)
}

// Unavailable is the error for a request that may succeed in a second.
func Unavailable(code, message string) *Error {
	e := failure(http.StatusServiceUnavailable, "server_error", code, message)
	e.RetryAfter = "1"
	return e
}

func failure(status int, kind, code, message string) *Error {
	return &Error{Status: status, Message: message, Type: kind, Code: code}
}

const maxModelName = 256

// NoModel is the error of a turn whose model no instance serves, in vLLM's words (entrypoints/openai/models/serving.py).
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

// Body returns the JSON of an error in an API's form: OpenAI's error object, or on Messages Anthropic's
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
