package unused

import "time"

// registration is the newest registration of an incarnation's KV memory.
type registration struct {
	generation int
	until      time.Time // blocks that decode held then or before are gone; zero if the memory was registered once
}

// Registered records the remote_registration_generation of an answer to a leg that was sent at a time. vLLM 0.33 raises it when the
// engine has slept and registers its KV memory again (nixl/base_scheduler.py): the blocks of all earlier answers are gone then. An engine that
// sleeps answers no leg, so that a leg with the new generation was sent after these answers had ended.
func (s *Ledger) Registered(generation int, sent time.Time) {
	if !s.cfg.Known {
		return
	}
	s.mu.Lock()
	last := s.memory.Load()
	if last != nil && last.generation >= generation {
		s.mu.Unlock()
		return
	}
	next := &registration{generation: generation}
	if last != nil && last.generation > 0 {
		next.until = sent.Add(-1) // the blocks of this answer may be as old as its leg
	}
	s.memory.Store(next)
	s.mu.Unlock()
	if !next.until.IsZero() {
		s.Drop(next.until)
	}
}

// registeredSince reports whether the memory was registered again later than held.
func (s *Ledger) registeredSince(held time.Time) bool {
	last := s.memory.Load()
	return last != nil && !last.until.IsZero() && !held.After(last.until)
}
