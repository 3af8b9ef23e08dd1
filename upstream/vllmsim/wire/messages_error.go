package wire

import (
	"net/http"

	"carryover/upstream/vllmsim/config"
)

// MessageError is an error of the Messages API, as a body and as an event.
type MessageError struct {
	Type  string             `json:"type"`
	Error messageErrorDetail `json:"error"`
}

type messageErrorDetail struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// ErrorAnswer returns the body of an error answered at path. On /v1/messages there are two shapes: FastAPI's checks of the body come before
// the API's own code and answer as everywhere (testdata/exchanges/vllm-0.32-agents 13). The render endpoint is not that code's, either.
func ErrorAnswer(e *Error, path string, c *config.Config) any {
	if (path != PathMessages && path != PathMessagesCount) || e.Kind == KindInvalidBody {
		return e.Body()
	}
	kind := e.Kind
	if c.Since033() {
		kind = messageErrorType(e.Status)
	}
	return MessageError{Type: "error", Error: messageErrorDetail{Type: kind, Message: e.Message}}
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

// MessageStreamError returns vLLM's event for an error in a chat stream. 0.32 takes the error for a chunk; 0.33 passes its message on
// (message_stream_converter, read).
func MessageStreamError(c *config.Config) MessageError {
	if c.Since033() {
		return MessageError{Type: "error", Error: messageErrorDetail{Type: "api_error", Message: InternalError().Message}}
	}
	return noChunkError()
}

// noChunkError is 0.32's error event (testdata/exchanges/vllm-0.32-agents 07).
func noChunkError() MessageError {
	const detail = "\n  Field required [type=missing, input_value={'error': {'message': 'In...am': None, 'code': 500}}, input_type=dict]\n" +
		"    For further information visit https://errors.pydantic.dev/2.14/v/missing"
	return MessageError{Type: "error", Error: messageErrorDetail{Type: "internal_error",
		Message: "2 validation errors for ChatCompletionStreamResponse\nmodel" + detail + "\nchoices" + detail}}
}
