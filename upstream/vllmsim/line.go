package vllmsim

import (
	"context"
	"slices"
	"time"
)

// line is requests that wait for the same thing, each for its turn. The engine's mutex guards it.
type line []*waiter

// waiter is one request in a line.
type waiter struct {
	called  chan struct{} // room for one call, so that the caller does not wait for the request and the call is not lost
	ahead   bool          // stands before those that have come in by the back
	arrived time.Time
}

// join adds a waiter at the end, or before all that came in by the back.
func (l *line) join(ahead bool) *waiter {
	w := &waiter{called: make(chan struct{}, 1), ahead: ahead, arrived: time.Now()}
	at := len(*l)
	if ahead {
		at = 0
		for at < len(*l) && (*l)[at].ahead {
			at++
		}
	}
	*l = slices.Insert(*l, at, w)
	return w
}

// leave takes w out, wherever it stands, and calls the one that is first then.
func (l *line) leave(w *waiter) {
	if at := slices.Index(*l, w); at >= 0 {
		*l = slices.Delete(*l, at, at+1)
	}
	l.call()
}

func (l *line) isFirst(w *waiter) bool { return (*l)[0] == w }

// call has the first look again whether there is what it waits for.
func (l *line) call() {
	if len(*l) == 0 {
		return
	}
	select {
	case (*l)[0].called <- struct{}{}:
	default: // a call that has not been heard yet does as well
	}
}

// wait returns when w is called or after limit of wall time, which it reports. The error is the cause of ctx.
func (w *waiter) wait(ctx context.Context, limit time.Duration) (late bool, err error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.called:
	case <-timer.C:
		late = true
	case <-ctx.Done():
	}
	return late, context.Cause(ctx)
}
