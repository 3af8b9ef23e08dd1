// Package storetime bounds the operations of a ticket store.
package storetime

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Limit returns a context for operations of a store, which ends after the limit. It is not cancelled with the client's: a client that
// leaves must not interrupt a take halfway.
func Limit(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	s := &storeTime{client: ctx, until: time.Now().Add(limit)}
	return s, s.end
}

// storeTime is the context of one store operation. A store in memory answers at once and never waits for the deadline. The timer and
// everything that belongs to it, nine allocations, are therefore made only when Done is called.
type storeTime struct {
	client context.Context //nolint:containedctx // only its values are used, not its cancellation
	until  time.Time

	mu    sync.Mutex      // guards what follows
	timed context.Context //nolint:containedctx // the real context, made by the first call of Done; nil before
	stop  context.CancelFunc
	err   error // why the context ended, if it ended before timed was made
}

// Deadline implements context.Context.
func (s *storeTime) Deadline() (time.Time, bool) { return s.until, true }

// Done implements context.Context.
func (s *storeTime) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timed != nil {
		return s.timed.Done()
	}
	if errors.Is(s.err, context.Canceled) {
		s.timed, s.stop = context.WithCancel(context.WithoutCancel(s.client))
		s.stop()
	} else {
		s.timed, s.stop = context.WithDeadline(context.WithoutCancel(s.client), s.until)
	}
	return s.timed.Done()
}

// Err implements context.Context.
func (s *storeTime) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.timed != nil:
		return s.timed.Err()
	case s.err == nil && !time.Now().Before(s.until):
		s.err = context.DeadlineExceeded
	}
	return s.err
}

// Value implements context.Context. It asks timed first, because contexts derived from this one then learn of its end without a goroutine.
func (s *storeTime) Value(key any) any {
	s.mu.Lock()
	from := s.timed
	s.mu.Unlock()
	if from == nil {
		from = context.WithoutCancel(s.client)
	}
	return from.Value(key)
}

// end cancels the context.
func (s *storeTime) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stop != nil:
		s.stop()
	case s.err == nil:
		s.err = context.Canceled
	}
}

var _ context.Context = (*storeTime)(nil)
