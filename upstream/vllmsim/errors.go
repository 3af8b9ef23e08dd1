package vllmsim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/template"
)

// errConnectionGone ends a request whose connection is closed or has to be closed.
var errConnectionGone = errors.New("connection gone")

// apiError is an error that vLLM's HTTP server answers.
type apiError struct {
	status  int
	message string
	kind    string
	param   string // empty: null
}

func (e *apiError) Error() string { return e.message }

type errorBody struct {
	Error errorDetail `json:"error"`
}

type errorDetail struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    int     `json:"code"`
}

func (e *apiError) body() errorBody {
	b := errorBody{Error: errorDetail{Message: e.message, Type: e.kind, Code: e.status}}
	if e.param != "" {
		b.Error.Param = &e.param
	}
	return b
}

// badRequest returns a VLLMValidationError; its message repeats the parameter.
func badRequest(param, format string, args ...any) *apiError {
	message := fmt.Sprintf(format, args...)
	return &apiError{status: http.StatusBadRequest, kind: "BadRequestError", param: param, message: message}
}

// kindInvalidBody is the type of an error of body validation.
const kindInvalidBody = "Bad Request"

// invalidBody returns an error of body validation; detail is pydantic's error as 0.32 prints it.
func invalidBody(param, detail string) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: kindInvalidBody, param: param,
		message: "1 validation error:\n  " + detail}
}

func internalError() *apiError {
	return &apiError{status: http.StatusInternalServerError, kind: "InternalServerError", message: "Internal server error"}
}

// asAPIError maps an error of the engine to the HTTP server's answer.
func asAPIError(err error) *apiError {
	var api *apiError
	if errors.As(err, &api) {
		return api
	}
	return internalError()
}

// errorEvent returns an error in a stream of chat or text. 0.32 writes it with json.dumps, hence the spaces; 0.33 is compact.
func errorEvent(e *apiError, c *config.Config) []byte {
	raw, err := json.Marshal(e.body())
	if err != nil || c.Since033() {
		return raw
	}
	text, err := template.PythonJSON(raw)
	if err != nil {
		return nil
	}
	return []byte(text)
}

// errorType is vLLM's error type for a status.
func errorType(status int) string {
	switch status {
	case http.StatusBadRequest:
		return "BadRequestError"
	case http.StatusNotFound:
		return "NotFoundError"
	case http.StatusForbidden:
		return "PermissionDeniedError"
	case http.StatusUnprocessableEntity:
		return "UnprocessableEntityError"
	case http.StatusTooManyRequests:
		return "RateLimitError"
	default:
		return "InternalServerError"
	}
}
