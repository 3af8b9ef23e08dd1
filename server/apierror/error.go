// Package apierror decides what clients learn of a failure: it maps errors to a status, a code and a message, in the shape that clients of
// each API know. Nothing that it returns has hosts or addresses of engines, or Go's error strings.
package apierror

import (
	"encoding/json"
	"net/http"
	"strings"

	"carryover/server/request"
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
