package convcache

import (
	"sync"
	"time"
)

// A breaker opens after a number of failures in a row, or when half of the operations within a window fail and the window has a least
// number of operations.
const (
	breakerInRow  = 5
	breakerSample = 20
	breakerWindow = time.Second
)

// breaker keeps turns from waiting for a server that does not answer. The results of operations open it; a test of the
// server, for which no turn waits, closes it.
type breaker struct {
	now    func() time.Time
	opened chan struct{} // has one element after it opened

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

// allows reports whether an operation may be sent.
func (b *breaker) allows() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.open
}

// record counts the result of an operation. Results that come after the breaker has opened change nothing.
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

// trip opens the breaker. The caller holds mu.
func (b *breaker) trip() {
	b.open = true
	select {
	case b.opened <- struct{}{}:
	default: // the last opening was not handled yet
	}
}

// set opens or closes the breaker, and resets its counts.
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
	case <-b.opened: // the opening was not handled yet, and needs no handling any more
	default:
	}
}
