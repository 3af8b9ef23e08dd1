package fleet

import (
	"slices"
	"time"

	"carryover/upstream"
)

// clearedMargin is added to the time of a cleared cache before tickets are compared with it. The times of other
// replicas' tickets come from other clocks, and package redisstore refuses those that differ by more than two seconds;
// besides, an answer and the event come on different connections and may arrive in either order.
const clearedMargin = 2 * time.Second

// maxCleared bounds the engines that are gone whose last clearing is remembered.
const maxCleared = 1024

// BlocksCleared records that the engine published AllBlocksCleared at a time: what it held for a next turn is gone, or
// about to be overwritten. vLLM 0.32 clears its cache only when no block is in use, so nothing was pinned then
// (v1/core/block_pool.py, reset_prefix_cache), and publishes the event with its next step. The record belongs to the
// engine and not to an incarnation, because the event may be the first sign of a new one.
func (e *Engine) BlocksCleared(at time.Time) {
	e.mu.Lock()
	if last := e.cleared.Load(); last == nil || at.After(*last) { // a replay of events reports several clearings
		e.cleared.Store(&at)
	}
	known := e.known
	e.mu.Unlock()
	e.forgetBlocks(true)
	if known != nil {
		known.dropUnused(at)
	}
}

// Void reports whether blocks that decode held at a time may be gone because the engine has cleared its cache since. A
// turn that asks before the event arrives is told false; then the engine itself fails the leg, because decode does not
// know the request any more.
func (s *Incarnation) Void(held time.Time) bool { return s.engine.clearedSince(held, clearedMargin) }

// Free reports whether blocks that decode held at a time are certainly pinned no more, because the engine has cleared
// its cache or has slept.
func (s *Incarnation) Free(held time.Time) bool {
	return s.engine.clearedSince(held, 0) || s.registeredSince(held)
}

// clearedSince reports whether the cache was cleared later than held minus margin, by the monotonic or the wall clock.
func (e *Engine) clearedSince(held time.Time, margin time.Duration) bool {
	cleared := e.cleared.Load()
	if cleared == nil {
		return false
	}
	until := cleared.Add(margin)
	return !held.After(until) || !held.Round(0).After(until.Round(0))
}

// dropUnused drops the unused tickets and expiring pins whose blocks decode held at until or before.
func (s *Incarnation) dropUnused(until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unused = slices.DeleteFunc(s.unused, func(u Unused) bool { return s.Free(u.FreshAsOf) })
	s.dropExpired()
	last := s.step(until)
	for at := range s.expiring.tokens {
		if at <= last {
			delete(s.expiring.tokens, at)
		}
	}
}

// keepCleared remembers when an engine that is gone cleared its cache. The next engine of its name may be the same
// process, as after a reload that changes its weight, and may hold its tickets. It needs f.mu.
func (f *Fleet) keepCleared(e *Engine) {
	cleared := e.cleared.Load()
	if cleared == nil || e.Role != upstream.RoleDecode {
		return
	}
	if f.clearings == nil {
		f.clearings = map[string]time.Time{}
	}
	for name := range f.clearings {
		if len(f.clearings) < maxCleared {
			break
		}
		delete(f.clearings, name) // any of them: no fleet loses so many engines within the life of a ticket
	}
	f.clearings[e.Name] = *cleared
}

// restoreCleared gives a new engine the clearing that was remembered for its name. It needs f.mu.
func (f *Fleet) restoreCleared(e *Engine) {
	if cleared, found := f.clearings[e.Name]; found && e.Role == upstream.RoleDecode && e.cleared.Load() == nil {
		e.cleared.Store(&cleared)
	}
}
