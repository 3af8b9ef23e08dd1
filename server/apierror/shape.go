package apierror

import (
	"net/http"

	"carryover/sse"
	"carryover/upstream/body"
)

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
