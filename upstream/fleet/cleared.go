package fleet

import (
	"slices"
	"time"

	"carryover/upstream"
)

// clearedMargin is how much later than its event a cache may have been cleared in the eyes of a ticket. Tickets of other replicas
// have times of other clocks, and those that disagree by more than two seconds are refused (package redisstore); what an
// answer said before comes on another connection than the event, and may come after it.
const clearedMargin = 2 * time.Second

// maxCleared bounds the engines that are gone of which it is remembered when they cleared their cache.
const maxCleared = 1024

// BlocksCleared records that the engine has published AllBlocksCleared, then: nothing that it held for a next turn until then is there
// any more, or it is about to be overwritten. vLLM 0.32 clears a cache only when no block is in use, so that none was pinned
// then (v1/core/block_pool.py, reset_prefix_cache), and publishes the event with its next step. What was cleared is not a matter
// of the start that was read last: the event may be the first that is heard of another.
func (e *Engine) BlocksCleared(at time.Time) {
	e.mu.Lock()
	if last := e.cleared.Load(); last == nil || at.After(*last) { // a replay tells of several
		e.cleared.Store(&at)
	}
	known := e.known
	e.mu.Unlock()
	e.forgetBlocks(true)
	if known != nil {
		known.dropUnused(at)
	}
}

// Void reports whether blocks that decode held at that time may be gone because the engine has cleared its cache since. A turn
// that has asked before the event came is not told: against that there is the engine's own check, which fails the leg where the
// request is not known to decode any more.
func (s *Incarnation) Void(held time.Time) bool { return s.engine.clearedSince(held, clearedMargin) }

// Free reports whether the blocks that decode held at that time are pinned no more, because the engine has cleared its cache.
func (s *Incarnation) Free(held time.Time) bool { return s.engine.clearedSince(held, 0) }

// clearedSince reports whether the cache was cleared later than that time and so much, by either clock.
func (e *Engine) clearedSince(held time.Time, margin time.Duration) bool {
	cleared := e.cleared.Load()
	if cleared == nil {
		return false
	}
	until := cleared.Add(margin)
	return !held.After(until) || !held.Round(0).After(until.Round(0))
}

// dropUnused forgets the tickets that wait for their release, and what else was pinned, of those that decode had until then.
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

// keepCleared remembers of an engine that is gone when its cache was cleared: another engine of its name may be the same process,
// as after a reload that changes its weight, and has its tickets. It needs f.mu.
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
		delete(f.clearings, name) // any: there are as many as no fleet loses within the life of a ticket
	}
	f.clearings[e.Name] = *cleared
}

// restoreCleared does so for an engine that is new. It needs f.mu.
func (f *Fleet) restoreCleared(e *Engine) {
	if cleared, found := f.clearings[e.Name]; found && e.Role == upstream.RoleDecode && e.cleared.Load() == nil {
		e.cleared.Store(&cleared)
	}
}
