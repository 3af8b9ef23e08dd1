package wire

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/template"
)

// ErrConnectionGone ends a request whose connection is closed or must be closed.
var ErrConnectionGone = errors.New("connection gone")

// Error is an error answer of vLLM's HTTP server.
type Error struct {
	Status  int
	Message string
	Kind    string
	Param   string // empty: null
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// ErrorBody is the body of an error.
type ErrorBody struct {
	Error ErrorDetail `json:"error"`
}

// ErrorDetail describes an error.
type ErrorDetail struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    int     `json:"code"`
}

// Body returns the body of the error, for all APIs except Messages.
func (e *Error) Body() ErrorBody {
	b := ErrorBody{Error: ErrorDetail{Message: e.Message, Type: e.Kind, Code: e.Status}}
	if e.Param != "" {
		b.Error.Param = &e.Param
	}
	return b
}

// BadRequest returns a VLLMValidationError. Its message repeats the parameter.
func BadRequest(param, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Kind: "BadRequestError", Param: param, Message: fmt.Sprintf(format, args...)}
}

// KindInvalidBody is the type of an error of body validation.
const KindInvalidBody = "Bad Request"

// InvalidBody returns an error of body validation; detail is pydantic's error as 0.32 prints it.
func InvalidBody(param, detail string) *Error {
	return &Error{Status: http.StatusBadRequest, Kind: KindInvalidBody, Param: param,
		Message: "1 validation error:\n  " + detail}
}

// InternalError returns an error that does not name its cause.
func InternalError() *Error {
	return &Error{Status: http.StatusInternalServerError, Kind: "InternalServerError", Message: "Internal server error"}
}

// AsError returns the HTTP server's answer for an error of the engine.
func AsError(err error) *Error {
	if api, ok := errors.AsType[*Error](err); ok {
		return api
	}
	return InternalError()
}

// ErrorEvent returns an error in a stream of chat or text. 0.32 writes it with json.dumps and its spaces; 0.33 is compact.
func ErrorEvent(e *Error, c *config.Config) []byte {
	raw := RawJSON(e.Body())
	if c.Since033() {
		return raw
	}
	text, _ := template.PythonJSON(raw) // it is JSON
	return []byte(text)
}

// ErrorType returns vLLM's error type for a status.
func ErrorType(status int) string {
	return cmp.Or(map[int]string{
		400: "BadRequestError", 403: "PermissionDeniedError", 404: "NotFoundError", 422: "UnprocessableEntityError", 429: "RateLimitError",
	}[status], "InternalServerError")
}
