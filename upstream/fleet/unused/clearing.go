package unused

import (
	"slices"
	"sync/atomic"
	"time"
)

// ClearedMargin is added to the time of a cleared cache before tickets are compared with it. The times of other
// replicas' tickets come from other clocks, and package redisstore refuses those that differ by more than two seconds;
// besides, an answer and the event come on different connections and may arrive in either order.
const ClearedMargin = 2 * time.Second

// Clearing is when a decode engine last reported that its KV cache was cleared. It belongs to the engine and not to an
// incarnation, because the event may be the first sign of a new one.
type Clearing struct{ last atomic.Pointer[time.Time] }

// Record records a clearing. An earlier one than the last changes nothing: a replay of events reports several.
func (c *Clearing) Record(at time.Time) {
	for {
		last := c.last.Load()
		if last != nil && !at.After(*last) || c.last.CompareAndSwap(last, &at) {
			return
		}
	}
}

// Last returns when the cache was last cleared, nil if it never was.
func (c *Clearing) Last() *time.Time { return c.last.Load() }

// since reports whether the cache was cleared later than held minus margin, by the monotonic or the wall clock.
func (c *Clearing) since(held time.Time, margin time.Duration) bool {
	cleared := c.last.Load()
	if cleared == nil {
		return false
	}
	until := cleared.Add(margin)
	return !held.After(until) || !held.Round(0).After(until.Round(0))
}

// Void reports whether blocks that decode held at a time may be gone because the engine has cleared its cache since. A
// turn that asks before the event arrives is told false; then the engine itself fails the leg, because decode does not
// know the request any more.
func (s *Ledger) Void(held time.Time) bool { return s.cfg.Clearing.since(held, ClearedMargin) }

// Free reports whether blocks that decode held at a time are certainly pinned no more, because the engine has cleared
// its cache or has slept.
func (s *Ledger) Free(held time.Time) bool {
	return s.cfg.Clearing.since(held, 0) || s.registeredSince(held)
}

// Drop drops the unused tickets and expiring pins whose blocks decode held at until or before.
func (s *Ledger) Drop(until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unused = slices.DeleteFunc(s.unused, func(u Ticket) bool {
		if !s.Free(u.FreshAsOf) {
			return false
		}
		u.drop(true)
		return true
	})
	s.dropExpired()
	last := s.step(until)
	for at := range s.expiring.tokens {
		if at <= last {
			delete(s.expiring.tokens, at)
		}
	}
}
