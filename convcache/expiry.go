package convcache

import (
	"context"
	"time"
)

const (
	// sweepEvery is how often Run removes expired tickets. Expired tickets are never handed out, so this serves memory
	// only. A conversation that was removed answers Empty instead of Expired, so a short interval would hide from
	// operators that clients come too late.
	sweepEvery = time.Minute
	// sweepBatch is how many tickets are removed under one hold of the lock: 0.13 ms among 100,000
	// (BenchmarkMemory_Sweep), well below the 5 ms that a turn grants a store.
	sweepBatch = 128
)

// left returns how far a deadline is ahead of now, by the clock that is closer to it, monotonic or wall. So neither
// clock makes a ticket look younger than it is: the monotonic one stands still while the machine is suspended
// (clock_gettime(2), CLOCK_MONOTONIC), and the wall clock may be set back. A wall clock that is set forward costs
// tickets. A deadline that was decoded has a wall reading only.
func left(deadline, now time.Time) time.Duration {
	return min(deadline.Sub(now), deadline.Round(0).Sub(now.Round(0)))
}

// deadlineOf returns the deadline of a ticket that is put: ttl from now, but by neither clock later than the ticket's
// own.
func deadlineOf(t *Ticket, now time.Time, ttl time.Duration) time.Time {
	if !t.Deadline.IsZero() {
		ttl = min(ttl, left(t.Deadline, now))
	}
	return now.Add(ttl)
}

// EvictStale removes every expired ticket and returns how many conversations went with them.
func (m *Memory) EvictStale() int {
	total := 0
	for {
		n, done := m.sweep()
		total += n
		if done {
			return total
		}
	}
}

// sweep removes up to sweepBatch expired tickets and says how many conversations went and whether
// none is left to remove.
func (m *Memory) sweep() (conversations int, done bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	for range sweepBatch {
		if len(m.expiry) == 0 || m.expiry[0].usable(now) {
			return conversations, true
		}
		if m.remove(m.expiry[0]) {
			conversations++
		}
	}
	return conversations, false
}

// Run is the janitor: it removes expired tickets every minute until ctx ends, and returns the cause.
func (m *Memory) Run(ctx context.Context) error {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
			m.EvictStale()
		}
	}
}

// Before orders tickets by deadline, soonest first, so that the janitor touches only expired ones. Where the clocks have
// diverged, a ticket that has expired by one of them may be behind one that has not.
func (s *stored) Before(other *stored) bool { return s.ticket.Deadline.Before(other.ticket.Deadline) }

// Place is where a ticket is among those, so that any can be removed in logarithmic time.
func (s *stored) Place() *int { return &s.heapAt }
