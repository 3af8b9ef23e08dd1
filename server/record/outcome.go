package record

import (
	"context"
	"errors"

	"carryover/upstream"
)

// ErrClientGone says that a turn ended because its client had gone.
var ErrClientGone = errors.New("client gone")

// StatusClientGone is nginx's status for a client that closed the connection before it had an answer. It appears only in logs.
const StatusClientGone = 499

// Blamed returns the instance whose leg failed the turn, and the kind of failure as [upstream.Kind] names it; both are "" if no leg failed
// it.
func (r *Turn) Blamed() (instance, kind string) {
	if r.End.Err == nil {
		return "", ""
	}
	var failed *upstream.LegError
	if errors.As(r.End.Err, &failed) {
		return failed.Instance, failed.Kind.String()
	}
	return "", ""
}

// Aborted reports whether the answer broke off after the client had seen part of it.
func (r *Turn) Aborted() bool {
	if r.End.Err == nil {
		return false
	}
	var abort *AbortError
	return errors.As(r.End.Err, &abort)
}

// ClientLeft reports whether the client had gone before the turn's end.
func (r *Turn) ClientLeft() bool {
	return r.End.Status == StatusClientGone || errors.Is(r.End.Err, ErrClientGone) || errors.Is(r.End.Err, context.Canceled)
}

// AbortError says that the answer broke off after the client had seen part of it. The connection must then end abnormally, because the
// client would take the truncated answer for a complete one.
type AbortError struct{ Err error }

// Error says what broke the answer.
func (e *AbortError) Error() string { return "answer broke off: " + e.Err.Error() }

// Unwrap returns what broke the answer.
func (e *AbortError) Unwrap() error { return e.Err }
