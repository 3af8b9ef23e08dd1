package server

import (
	"context"
	"errors"
	"sync"
	"time"
)

// storeContext bounds a store operation. It is detached: a client that leaves must
// not cut a take in half.
func storeContext(ctx context.Context, cfg *Config) (context.Context, context.CancelFunc) {
	s := &storeTime{client: ctx, until: time.Now().Add(cfg.StoreTimeout)}
	return s, s.end
}

// storeTime is the context of one store operation. A store in memory answers at once and never asks for the end of its time: the timer
// and all that belongs to it, nine allocations, are made for those that do.
type storeTime struct {
	client context.Context //nolint:containedctx // its values count, and its end does not
	until  time.Time

	mu    sync.Mutex      // guards what follows
	timed context.Context //nolint:containedctx // does the work once Done was asked for, nil before
	stop  context.CancelFunc
	err   error // how its time has ended before that
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

// Value implements context.Context. It asks timed, so that contexts that are made of this one are told of its end without a goroutine.
func (s *storeTime) Value(key any) any {
	s.mu.Lock()
	from := s.timed
	s.mu.Unlock()
	if from == nil {
		from = context.WithoutCancel(s.client)
	}
	return from.Value(key)
}

// end ends the operation's time.
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
