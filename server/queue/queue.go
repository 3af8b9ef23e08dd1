// Package queue lets turns wait for a slot, in fair shares among tenants.
//
// A slot is what a turn needs before it goes on: one of the turns that the server runs at once, or one of the requests that an instance
// takes. The queue does not have the slots. A turn brings a function that tries to take one and reports whether it did; the queue decides
// when to call it. Turns that wait for the same kind of slot, their class, form a line: if one of them can't get a slot, no other can.
//
// It promises:
//
//   - No slot stays free while a turn of its class waits: see [Queue.Freed].
//   - The tenant with the fewest slots of the class is served next; of several such tenants, the one that has waited for longest. A tenant
//     with one turn does not wait behind a hundred turns of another.
//   - The number of waiting turns is bounded, and no tenant can keep another out: if the queue is full, the newest turn of the tenant with
//     the most turns gives way.
//   - A turn leaves when its context ends, when its time is over, or when the queue is closed.
//   - A tenant that holds and waits for nothing takes no memory, because clients choose their tenants' names.
//
// The callers are packages admission and pick. queue.go is what it calls, line.go the order in which turns are served.
package queue

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// A turn gets no slot for these reasons.
var (
	ErrFull    = errors.New("queue is full")
	ErrTimeout = errors.New("no place in time")
	ErrTenant  = errors.New("tenant is at its limit")
	ErrClosed  = errors.New("queue is closed")
)

// Config bounds a Queue. Its zero value lets no turn wait.
type Config struct {
	MaxWaiting   int           // turns that wait at once
	Timeout      time.Duration // bounds all waits of a turn together
	MaxPerTenant int           // slots of one class that a tenant may hold and wait for; 0 is no limit
}

// Claim is one tenant's claim to a slot of a class.
type Claim struct{ Tenant, Class string }

// Queue is where turns wait. Create it with New. It is safe for concurrent use.
type Queue struct {
	waiting atomic.Int64 // turns in lines; it is written with mu held

	mu     sync.Mutex // guards the rest. It is not held while try is called
	cfg    Config
	closed bool
	slots  map[Claim]int    // without zeros
	lines  map[string]*line // by class, without empty ones
	came   uint64           // numbers the turns in the order in which they came
	delay  time.Duration    // how long turns have waited recently
}

// New returns an empty queue.
func New(cfg Config) *Queue {
	return &Queue{cfg: cfg, slots: map[Claim]int{}, lines: map[string]*line{}}
}

// Configure changes the bounds. Turns that wait already go on waiting as they were let in.
func (q *Queue) Configure(cfg Config) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cfg = cfg
}

// Wait returns nil when try has taken a slot, which the claim then holds until Leave. try is called on this goroutine and reports whether it
// took a slot; it may lock and must not wait. waited is how long the turn has waited for other slots before; took is how long it waited for
// this one.
//
// The error is ErrTenant, ErrFull, ErrTimeout or ErrClosed, or the cause of ctx. If no turn of the class waits, try decides before any of
// the last three.
func (q *Queue) Wait(ctx context.Context, c Claim, waited time.Duration, try func() bool) (took time.Duration, err error) {
	first, err := q.begin(c)
	if err != nil {
		return 0, err
	}
	if first {
		if q.attempt(c, try) {
			return 0, nil
		}
		q.Leave(c)
	}
	w, left, err := q.enter(c, waited)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	err = q.await(ctx, w, left, try)
	return time.Since(began), err
}

// begin checks whether the tenant may have another slot, and counts the slot as held if no turn of the class waits.
func (q *Queue) begin(c Claim) (first bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[c.Class]
	if q.limited(c) {
		return false, ErrTenant
	}
	if l != nil {
		return false, nil
	}
	q.hold(c, 1)
	return true, nil
}

// limited reports whether the tenant's slots and waiting turns together have reached its limit. The caller holds q.mu.
func (q *Queue) limited(c Claim) bool {
	return q.cfg.MaxPerTenant > 0 && q.slots[c]+q.lines[c.Class].waitingOf(c.Tenant) >= q.cfg.MaxPerTenant
}

// attempt calls try for a claim that is counted already, and uncounts it if try panics.
func (q *Queue) attempt(c Claim, try func() bool) bool {
	returned := false
	defer func() {
		if !returned {
			q.Leave(c)
		}
	}()
	took := try()
	returned = true
	return took
}

func (q *Queue) enter(c Claim, waited time.Duration) (*waiter, time.Duration, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	left := q.cfg.Timeout - waited
	switch {
	case q.closed:
		return nil, 0, ErrClosed
	case q.limited(c): // by turns that have come since begin looked
		return nil, 0, ErrTenant
	case q.cfg.MaxWaiting <= 0:
		return nil, 0, ErrFull
	case left <= 0:
		return nil, 0, ErrTimeout
	case q.waiting.Load() >= int64(q.cfg.MaxWaiting) && !q.displace(c):
		return nil, 0, ErrFull
	}
	l := q.lines[c.Class]
	opened := l == nil
	if opened {
		l = newLine()
		q.lines[c.Class] = l
	}
	q.came++
	w := &waiter{claim: c, line: l, came: q.came, told: make(chan error, 1)}
	l.add(w, q.slots[c])
	// Freed wakes the line for slots that are freed after this. A try that begins after this sees slots that were freed before: in an older
	// line Freed has seen to that, in a new one the turn itself tries.
	q.waiting.Add(1)
	if opened {
		l.wake()
	}
	return w, left, nil
}

func (q *Queue) await(ctx context.Context, w *waiter, left time.Duration, try func() bool) error {
	began := time.Now()
	timer := time.NewTimer(left)
	defer timer.Stop()
	defer q.quit(w) // does nothing if the turn has its slot
	for {
		select {
		case err := <-w.told:
			switch {
			case err != nil:
				return err
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case try():
				q.served(w, time.Since(began))
				return nil
			}
			if err := q.unserved(w); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			q.mu.Lock()
			q.waitedFor(left)
			q.mu.Unlock()
			return ErrTimeout
		}
	}
}

// Leave stops counting a claim's slot. It is called before the slot itself is given back, so that the shares are right when Freed is called.
func (q *Queue) Leave(c Claim) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.hold(c, -1)
}

// Freed makes turns try again; it is called after something has been freed that turns may wait for. In each class one turn at a time is told
// to try. If it gets a slot the next one is told, and if not the class waits on.
//
// No wake-up is lost. A turn is counted in waiting before it tries, and a slot is free before waiting is read here. So either the turn is
// seen here, or its try sees the slot. A turn that was told and has not found out yet tries once more (line.again), and one that leaves
// instead of trying passes the call on (quit).
func (q *Queue) Freed() {
	if q.waiting.Load() == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.lines {
		l.wake()
	}
}

// Close makes all waits return ErrClosed, and lets no turn wait any more. Free slots can still be taken.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, l := range q.lines {
		for _, w := range l.all() {
			if w != l.told { // that one finds out when its try has failed
				q.remove(w)
				w.told <- ErrClosed
			}
		}
	}
}

// Waiting returns how many turns wait.
func (q *Queue) Waiting() int { return int(q.waiting.Load()) }

// Delay returns how long turns have recently waited until they got a slot or their time was over, as an estimate for a client that tries
// again. It is meaningless while no turn waits.
func (q *Queue) Delay() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.delay
}

// waitedFor needs q.mu.
func (q *Queue) waitedFor(d time.Duration) { q.delay += (d - q.delay) / 8 }
