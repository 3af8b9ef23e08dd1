package vllmsim

import (
	"net/http"

	"carryover/upstream/vllmsim/config"
)

// messageError is an error of this API, as a body and as an event.
type messageError struct {
	Type  string             `json:"type"`
	Error messageErrorDetail `json:"error"`
}

type messageErrorDetail struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// errorAnswer returns the body of an error answered at path. On /v1/messages there are two shapes: FastAPI's checks of the body come before
// the API's own code and answer as everywhere (testdata/exchanges/vllm-0.32-agents 13). The render endpoint is not that code's, either.
func errorAnswer(e *apiError, path string, c *config.Config) any {
	if (path != pathMessages && path != pathMessagesCount) || e.kind == kindInvalidBody {
		return e.body()
	}
	kind := e.kind
	if c.Since033() {
		kind = messageErrorType(e.status)
	}
	return messageError{Type: "error", Error: messageErrorDetail{Type: kind, Message: e.message}}
}

// messageErrorType is Anthropic's name for a status, which 0.33 answers in place of vLLM's own (translate_error_type,
// anthropic/protocol.py; 400 and 404 are measured).
func messageErrorType(status int) string {
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
	}
	if status >= http.StatusInternalServerError {
		return "api_error"
	}
	return "invalid_request_error"
}

// messageStreamError returns vLLM's event for an error in a chat stream. 0.32 takes the error for a chunk; 0.33 passes its message on
// (message_stream_converter, read).
func messageStreamError(c *config.Config) messageError {
	if c.Since033() {
		return messageError{Type: "error", Error: messageErrorDetail{Type: "api_error", Message: internalError().message}}
	}
	return noChunkError()
}

// noChunkError is 0.32's error event (testdata/exchanges/vllm-0.32-agents 07).
func noChunkError() messageError {
	const detail = "\n  Field required [type=missing, input_value={'error': {'message': 'In...am': None, 'code': 500}}, input_type=dict]\n" +
		"    For further information visit https://errors.pydantic.dev/2.14/v/missing"
	return messageError{Type: "error", Error: messageErrorDetail{Type: "internal_error",
		Message: "2 validation errors for ChatCompletionStreamResponse\nmodel" + detail + "\nchoices" + detail}}
}
