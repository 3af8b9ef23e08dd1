package request

import (
	"fmt"
	"net/http"
)

// Error is a request that is refused for what its client sent, or for the memory that it would take.
type Error struct {
	Status  int    // of the answer
	Param   string // the member of the body at fault, "" for none
	Code    string // of the API's error
	Message string // for the client
	Cause   error  // for the log; the client does not learn it. nil if Message says everything
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

func badRequest(param, code, message string) *Error {
	return &Error{Status: http.StatusBadRequest, Param: param, Code: code, Message: message}
}

func refused(status int, code, message string) *Error {
	return &Error{Status: status, Code: code, Message: message}
}

// overloaded refuses a request for want of memory. It may be sent again.
func overloaded(message string) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Code: "overloaded", Message: message}
}

// TooLarge is the error for a body of more bytes than the limit.
func TooLarge(limit int64) *Error {
	return refused(http.StatusRequestEntityTooLarge, "request_too_large", fmt.Sprintf("The request body is larger than %d bytes.", limit))
}
