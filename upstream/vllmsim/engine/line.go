package engine

import (
	"context"
	"slices"
	"time"
)

// line is a queue of requests that wait for the same thing. The engine's mutex guards it.
type line []*waiter

type waiter struct {
	called  chan struct{} // buffers one call, so that the caller need not wait and the call is not lost
	ahead   bool          // stands before all waiters that joined at the end
	arrived time.Time
}

// join adds a waiter at the end of the line or, with ahead, before all waiters that joined at the end.
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

// leave removes w from any place, and calls the first waiter.
func (l *line) leave(w *waiter) {
	if at := slices.Index(*l, w); at >= 0 {
		*l = slices.Delete(*l, at, at+1)
	}
	l.call()
}

func (l *line) isFirst(w *waiter) bool { return (*l)[0] == w }

// call makes the first waiter check again whether it can continue.
func (l *line) call() {
	if len(*l) == 0 {
		return
	}
	select {
	case (*l)[0].called <- struct{}{}:
	default: // one unread call is enough
	}
}

// wait returns when w is called, or with late == true after limit of wall time. The error is the cause of ctx.
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
