package convcache

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A breaker opens after breakerInRow failures in a row, or if half of at least breakerSample operations in a window fail.
const (
	breakerInRow  = 5
	breakerSample = 20
	breakerWindow = time.Second
)

// breaker keeps turns from waiting for a server that does not answer. Results of operations open it; a test of the server closes it.
type breaker struct {
	now    func() time.Time
	opened chan struct{} // one element after it opened

	mu     sync.Mutex // guards everything below
	open   bool
	inRow  int
	began  time.Time // of the window
	total  int       // in the window
	failed int
}

func newBreaker(now func() time.Time) *breaker {
	return &breaker{now: now, opened: make(chan struct{}, 1)}
}

func (b *breaker) allows() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.open
}

// record counts a result. An open breaker ignores it.
func (b *breaker) record(ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open {
		return
	}
	if now := b.now(); now.Sub(b.began) >= breakerWindow || now.Before(b.began) {
		b.began, b.total, b.failed = now, 0, 0
	}
	b.total++
	if ok {
		b.inRow = 0
	} else {
		b.inRow++
		b.failed++
	}
	if b.inRow >= breakerInRow || b.total >= breakerSample && 2*b.failed >= b.total {
		b.trip()
	}
}

// trip opens the breaker; mu is held.
func (b *breaker) trip() {
	b.open = true
	select {
	case b.opened <- struct{}{}:
	default: // Run has not seen the last opening yet
	}
}

func (b *breaker) set(open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inRow, b.began, b.total, b.failed = 0, time.Time{}, 0, 0
	if open {
		b.trip()
		return
	}
	b.open = false
	select {
	case <-b.opened: // a stale signal
	default:
	}
}

// RemoteState says whether tickets are shared.
type RemoteState int32

// The states. A store that has not been tested counts as up.
const (
	// RemoteUp: the remote store answers, as far as is known.
	RemoteUp RemoteState = iota
	// RemoteDown: it does not answer. Tickets stay in this process.
	RemoteDown
	// RemoteRefused: it answers, but forbids or lacks what is needed. Tickets stay in this process.
	RemoteRefused
)

// String returns the state in lower case, for logs and readiness.
func (s RemoteState) String() string {
	switch s {
	case RemoteDown:
		return "down"
	case RemoteUp:
		return "up"
	case RemoteRefused:
		return "refused"
	}
	return "unknown"
}

// The pauses between tests: one while the server answers, because few turns would notice a failure late, and two for retries.
const (
	testEvery  = 5 * time.Second
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// testsFailed tests in a row stop the use of a server even if look-ups succeed: a server that is full, or that refuses a script, still
// answers every HMGET.
const testsFailed = 2

// State returns what is known of the remote store.
func (s *Shared) State() RemoteState { return RemoteState(s.state.Load()) }

func stateAfter(err error) RemoteState {
	switch {
	case err == nil:
		return RemoteUp
	case errors.Is(err, ErrRemoteForbids):
		return RemoteRefused
	}
	return RemoteDown
}

// Check tests the remote store. Only ErrRemoteForbids is a fault of the set-up. Without a Check, tickets are shared from the start.
func (s *Shared) Check(ctx context.Context) error {
	err := s.remote.Test(ctx)
	if err != nil {
		s.failed(err)
	}
	s.breaker.set(err != nil)
	s.state.Store(int32(stateAfter(err)))
	return err
}

// Run tests the remote store every 5 s, or after 1 s, 2 s, … 30 s while it fails, and removes expired tickets. It returns the cause of ctx' end.
func (s *Shared) Run(ctx context.Context) error {
	sweep, look := time.NewTicker(sweepEvery), time.NewTicker(testEvery)
	defer sweep.Stop()
	defer look.Stop()
	failed := 0
	wait := firstRetry
	retry := time.NewTimer(wait)
	retry.Stop()
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-sweep.C:
			s.home.EvictStale()
		case <-look.C:
			if !s.breaker.allows() {
				continue
			}
			failed = s.judge(s.remote.Test(ctx), failed)
		case <-s.breaker.opened:
			failed = 0
			if s.state.CompareAndSwap(int32(RemoteUp), int32(RemoteDown)) {
				s.logger.Warn("redis does not work; new tickets stay in this process until it does", "error", s.lastFailure())
				s.report("Redis does not work: new tickets stay in this replica until it does.")
			}
			wait = firstRetry
			retry.Reset(wait)
		case <-retry.C:
			if s.settled(s.remote.Test(ctx)) {
				continue
			}
			wait = min(2*wait, lastRetry)
			retry.Reset(wait)
		}
	}
}

// judge handles a test of a server in use after failed failures in a row, and returns their new number.
func (s *Shared) judge(err error, failed int) int {
	if err == nil {
		return 0
	}
	forbids := errors.Is(err, ErrRemoteForbids)
	if forbids {
		s.settled(err)
	} else {
		s.failed(err)
	}
	if forbids || failed+1 >= testsFailed {
		s.breaker.set(true)
	}
	return failed + 1
}

func (s *Shared) lastFailure() string {
	if err := s.failure.Load(); err != nil {
		return (*err).Error()
	}
	return ""
}

// settled handles a test of a server that did not work, and reports whether it works now.
func (s *Shared) settled(err error) bool {
	state := stateAfter(err)
	before := RemoteState(s.state.Swap(int32(state)))
	switch {
	case err == nil:
		s.breaker.set(false)
		s.logger.Info("redis answers; tickets are shared")
		s.report("Redis answers: tickets are shared among replicas.")
	case state != before && state == RemoteRefused:
		s.logger.Error("redis can't be used", "error", err)
		s.report("Redis refuses a command that is needed: new tickets stay in this replica until an operator fixes that.")
	}
	if err != nil {
		s.failed(err)
	}
	return err == nil
}
