package kvready

import (
	"context"
	"errors"
	"slices"
)

// Why an arrival fails, apart from a failure that prefill reports (FailedError).
var (
	errBadID  = errors.New("wait for KV: no id, or one that is too long")
	errTwice  = errors.New("wait for KV: the id is waited for already")
	errFull   = errors.New("wait for KV: too many waits")
	errClosed = errors.New("wait for KV: given up")
)

// FailedError says that prefill has given up: the KV will not arrive.
type FailedError struct {
	State string // FAILED or CANCELLED, as in prefill's message
}

// Error returns the message, with the state.
func (e *FailedError) Error() string { return "prefill says that the KV will not arrive: " + e.State }

// effect is the effect of a note on a wait.
type effect int

const (
	effectNone    effect = iota // there is no wait for the id
	effectCounted               // the note was expected
	effectFailed                // the note has ended the wait in failure
	effectSurplus               // the note came after the end of the wait, or again from the same rank
)

// wait is one expected arrival. Waits.mu guards all fields but done; err is written before done is closed.
type wait struct {
	waits *Waits
	id    string
	left  int     // notifications that are still to come
	ranks []int64 // counted so far, from notes that name a rank
	err   error
	done  chan struct{} // closed when the wait is over
}

// apply applies a note. The caller holds Waits.mu.
func (a *wait) apply(n note) effect {
	if a.over() || n.meaning == ranked && slices.Contains(a.ranks, n.rank) {
		return effectSurplus
	}
	switch n.meaning {
	case failed:
		a.end(&FailedError{State: n.state})
		return effectFailed
	case ranked:
		a.ranks = append(a.ranks, n.rank) // at most as many as the expected notifications
	}
	if a.left--; a.left == 0 {
		a.end(nil)
	}
	return effectCounted
}

// over reports whether the wait has ended.
func (a *wait) over() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// end ends the wait. The caller holds Waits.mu.
func (a *wait) end(err error) {
	a.err = err
	close(a.done)
}

// Ready returns nil when all notifications have come, a *FailedError when prefill gives up, the cause of ctx when ctx ends
// first, and an error after Close. It may be called again, and by several goroutines at once.
func (a *wait) Ready(ctx context.Context) error {
	select {
	case <-a.done:
		return a.err
	default:
	}
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close ends the wait and forgets the id.
func (a *wait) Close() {
	a.waits.mu.Lock()
	defer a.waits.mu.Unlock()
	if a.waits.byID[a.id] == a {
		delete(a.waits.byID, a.id)
	}
	if !a.over() {
		a.end(errClosed)
	}
}

// refusal is an arrival that fails at once.
type refusal struct{ err error }

// Ready returns the reason.
func (r refusal) Ready(context.Context) error { return r.err }

// Close does nothing.
func (refusal) Close() {}
