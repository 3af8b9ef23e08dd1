package convcache

import (
	"context"
	"time"
)

const (
	// sweepEvery is the pause of the janitor, which only saves memory. A shorter one would answer Empty instead of Expired, and hide from
	// operators that clients come too late.
	sweepEvery = time.Minute
	// sweepBatch is how many tickets go under one lock: 0.13 ms among 100,000 (BenchmarkMemory_Sweep). A turn grants a store 5 ms.
	sweepBatch = 128
)

// left returns the time to a deadline by the clock that is closer to it. The monotonic clock stands still while the machine is suspended
// (clock_gettime(2), CLOCK_MONOTONIC), and the wall clock may be set back. A wall clock set forward costs tickets. A decoded deadline has
// only a wall reading.
func left(deadline, now time.Time) time.Duration {
	return min(deadline.Sub(now), deadline.Round(0).Sub(now.Round(0)))
}

// deadlineOf returns ttl from now, but by neither clock later than the ticket's own deadline.
func deadlineOf(t *Ticket, now time.Time, ttl time.Duration) time.Time {
	if !t.Deadline.IsZero() {
		ttl = min(ttl, left(t.Deadline, now))
	}
	return now.Add(ttl)
}

// EvictStale removes every expired ticket and returns the number of conversations that it removed.
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

// sweep removes up to sweepBatch expired tickets; done means that none is left.
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

// Run removes expired tickets every minute until ctx ends, and returns the cause.
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

// Before orders tickets by deadline. If the clocks diverge, a ticket that expired by one clock may be behind one that has not.
func (s *stored) Before(other *stored) bool { return s.ticket.Deadline.Before(other.ticket.Deadline) }

// Place implements account.Ordered.
func (s *stored) Place() *int { return &s.heapAt }
