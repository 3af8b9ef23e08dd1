package kubernetes

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

var (
	errNameless  = errors.New("an object has no name")
	errTooMany   = errors.New("more than 10,000 match; narrow the label selector")
	errPageLarge = errors.New("a page of the list has more than 16 MiB")
	// errBrief is for a watch that ended at once without an event, as behind a proxy that does not pass streams on.
	errBrief = errors.New("the watch ended at once")
	// errUnreadable is for an event that came whole and cannot be parsed. A watch from the same version would bring it again.
	errUnreadable = errors.New("an event cannot be read")
)

// refusal is an answer other than 200, or an ERROR event: the API server's Status object.
type refusal struct {
	verb       string // list or watch
	code       int
	reason     string // Kubernetes' word, like Expired
	message    string
	retryAfter time.Duration
}

// Error returns the status and the API server's message, which names no credential.
func (r *refusal) Error() string {
	return fmt.Sprintf("%d %s: %.300s", r.code, r.reason, r.message)
}

func refused(err error, codes ...int) bool {
	var r *refusal
	if !errors.As(err, &r) {
		return false
	}
	for _, code := range codes {
		if r.code == code {
			return true
		}
	}
	return false
}

// forgotten reports whether the API server no longer has the requested version, or the requested page of a list.
func forgotten(err error) bool { return refused(err, http.StatusGone) }

// resumable reports whether a watch may go on from its version after err: the network broke, or the API server was busy or did
// not accept the token. After any other error the version itself may be at fault, and a list is needed. If a watch is forbidden,
// this means list after list, which keeps instances up to date where the account may only list.
func resumable(err error) bool {
	var r *refusal
	if errors.As(err, &r) {
		return refused(err, http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusServiceUnavailable)
	}
	return !errors.Is(err, errUnreadable) && !errors.Is(err, errTooMany)
}
