package upstream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Only a read that waits for the engine can be idle; a client that takes its bytes slowly has a limit of its own. To
// reset and stop a timer costs 0.15 µs per read, to store a time 0.04. So the timer of a stream is left to fire, and
// is then set again for as long as the current read may still wait.

// legLimits end a decode leg that waits too long, or whose client has gone. One timer serves all reads.
type legLimits struct {
	cancel    context.CancelCauseFunc
	answered  atomic.Bool           // the first read has returned
	abandoned atomic.Pointer[error] // the cause with which to end after the first read
	spared    atomic.Bool           // the answer is read to its end although the client has gone

	began   time.Time
	waiting atomic.Int64 // when the current read began, in nanoseconds since began; 0 if there is none
	idle    time.Duration
	arming  sync.Mutex // guards the rest
	timer   *time.Timer
	until   time.Time // when an abandoned leg ends
	closed  bool      // the timer is not needed any more
}

// waits records that a read begins; 0 is stored when it has returned.
func (l *legLimits) waits() { l.waiting.Store(max(1, int64(time.Since(l.began)))) }

// start arms the limit for the first byte.
func (l *legLimits) start(firstByte time.Duration) {
	l.arming.Lock() // until the timer is set, which may fire at once
	defer l.arming.Unlock()
	l.timer = time.AfterFunc(firstByte, l.due)
}

// begins ends the limit for the first byte.
func (l *legLimits) begins() {
	l.arming.Lock()
	defer l.arming.Unlock()
	if l.abandoned.Load() == nil && !l.closed {
		l.timer.Reset(l.idle)
	}
}

// close stops the limits.
func (l *legLimits) close() {
	l.arming.Lock()
	defer l.arming.Unlock()
	l.closed = true
	l.timer.Stop()
}

// due ends the leg if a limit has passed, and else sets the timer for the time when one may.
func (l *legLimits) due() {
	l.arming.Lock()
	defer l.arming.Unlock()
	switch cause := l.abandoned.Load(); {
	case l.closed:
	case cause != nil:
		if left := time.Until(l.until); left > 0 { // the client left at this moment
			l.timer.Reset(left)
			return
		}
		l.cancel(*cause)
	case !l.answered.Load():
		l.cancel(ErrFirstByteTimeout)
	default:
		left := l.idle
		if since := l.waiting.Load(); since > 0 {
			left -= time.Since(l.began) - time.Duration(since)
		}
		if left <= 0 {
			l.cancel(ErrIdleTimeout)
			return
		}
		l.timer.Reset(left)
	}
}

// abandon ends the leg with a cause because its client has gone: at once if decode has begun to answer, else when
// decode begins, or after limit. An answer that is spared gets all of limit.
func (l *legLimits) abandon(cause error, limit time.Duration) {
	l.arming.Lock()
	l.abandoned.Store(&cause)
	l.until = time.Now().Add(limit)
	if !l.closed {
		l.timer.Reset(limit)
	}
	l.arming.Unlock()
	if l.answered.Load() && !l.spared.Load() {
		l.cancel(cause)
	}
}
