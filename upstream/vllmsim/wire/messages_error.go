package wire

import (
	"cmp"

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

// ErrorAnswer returns the body of an error at path. /v1/messages has two shapes: FastAPI checks the body before the API's own code, and
// answers as everywhere (testdata/exchanges/vllm-0.32-agents 13). The render endpoint does not run that code either.
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

// messageErrorType returns Anthropic's name for a status, which 0.33 answers in place of vLLM's own (translate_error_type,
// anthropic/protocol.py; 400 and 404 are measured).
func messageErrorType(status int) string {
	kind := map[int]string{
		401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error",
	}[status]
	if status >= 500 {
		return cmp.Or(kind, "api_error")
	}
	return cmp.Or(kind, "invalid_request_error")
}

// MessageStreamError returns vLLM's event for an error in a chat stream. 0.32 mistakes the error for a chunk
// (testdata/exchanges/vllm-0.32-agents 07); 0.33 passes its message on (message_stream_converter, read).
func MessageStreamError(c *config.Config) MessageError {
	if c.Since033() {
		return MessageError{Type: "error", Error: messageErrorDetail{Type: "api_error", Message: InternalError().Message}}
	}
	const detail = "\n  Field required [type=missing, input_value={'error': {'message': 'In...am': None, 'code': 500}}, input_type=dict]\n" +
		"    For further information visit https://errors.pydantic.dev/2.14/v/missing"
	return MessageError{Type: "error", Error: messageErrorDetail{Type: "internal_error",
		Message: "2 validation errors for ChatCompletionStreamResponse\nmodel" + detail + "\nchoices" + detail}}
}
