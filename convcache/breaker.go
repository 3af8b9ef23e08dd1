package convcache

import (
	"sync"
	"time"
)

// When a breaker opens: so many failures one after another, or half of at least so many operations within
// a window.
const (
	breakerInRow  = 5
	breakerSample = 20
	breakerWindow = time.Second
)

// breaker keeps turns from waiting for a server that does not answer. It opens by what operations report,
// and is closed from outside, by a test of the server that no turn waits for.
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

// allows says whether an operation may be sent.
func (b *breaker) allows() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.open
}

// record counts an operation that was sent. What is reported after the breaker opened changes nothing.
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
	default: // the last opening has not been looked at yet
	}
}

// set opens or closes the breaker, and forgets what was counted.
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
	case <-b.opened: // the opening was not looked at, and needs nothing any more
	default:
	}
}
