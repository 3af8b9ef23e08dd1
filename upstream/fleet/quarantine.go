package fleet

import (
	"slices"

	"carryover/upstream"
)

// quarantine is a barred start of an engine that is gone: discovery may lose an instance for a
// moment and find the same start again.
type quarantine struct {
	location
	incarnation string
}

// location is where an engine is, whatever it is called. Data-parallel ranks share an address, and each has its own prefix cache.
type location struct {
	role   upstream.Role
	url    string
	rank   int
	ranked bool
}

func locationOf(e *Engine) location { return location{e.Role, e.BaseURL, e.Rank, e.Ranked} }

// maxAway bounds the bars of engines that are gone. Where there are more, the oldest
// goes.
const maxAway = 64

// Quarantine records that this prefill start has computed other ids than it was sent. Such a
// start has filed KV of other tokens in its prefix cache, and serves it to every request
// that begins with the right ones, until it is restarted. The bar outlives the engine's
// absence from the fleet.
func (s *Incarnation) Quarantine() {
	s.setQuarantined()
	if !s.Known() {
		return
	}
	e := s.engine
	e.mu.Lock()
	e.quarantinedID = s.id // two processes behind one address may tell their starts by turns
	e.mu.Unlock()
	f := e.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.gone.Load() { // since the leg began that found it out
		f.file(quarantine{locationOf(e), s.id})
	}
}

func (s *Incarnation) setQuarantined() {
	s.engine.suspected.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quarantined = true
}

// Quarantined reports whether the start is barred.
func (s *Incarnation) Quarantined() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.quarantined
}

// Quarantined reports whether no prefill leg may go to the engine. While its start is not
// known, it may be one that was barred, however many have been read since: two processes
// may be behind one address.
func (e *Engine) Quarantined() bool {
	if !e.suspected.Load() { // asked of each candidate
		return false
	}
	incarnation := e.Fresh()
	if incarnation.Known() || incarnation.Quarantined() {
		return incarnation.Quarantined()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.quarantinedID != "" || e.known != nil && e.known.Quarantined()
}

// keepQuarantine keeps the bar of an engine that goes. It needs f.mu.
func (f *Fleet) keepQuarantine(e *Engine) {
	e.mu.Lock()
	last := e.known
	e.mu.Unlock()
	if last != nil && last.Quarantined() {
		f.file(quarantine{locationOf(e), last.id})
	}
}

// file gives a bar to the engine that is at its place, or keeps it until there is one. It
// needs f.mu.
func (f *Fleet) file(b quarantine) {
	for _, e := range f.engines[b.role] {
		if locationOf(e) == b.location {
			e.restore(b.incarnation)
			return
		}
	}
	f.away = slices.DeleteFunc(f.away, func(old quarantine) bool { return old.location == b.location })
	if len(f.away) == maxAway {
		f.away = slices.Delete(f.away, 0, 1)
	}
	f.away = append(f.away, b)
}

// restoreQuarantine gives an engine that comes the bar of the one that was at its place. It needs
// f.mu.
func (f *Fleet) restoreQuarantine(e *Engine) {
	f.away = slices.DeleteFunc(f.away, func(b quarantine) bool {
		if b.location != locationOf(e) {
			return false
		}
		e.restore(b.incarnation)
		return true
	})
}

// restore bars a start of the engine. Until a reading tells, it is the last one that is
// known.
func (e *Engine) restore(start string) {
	e.suspected.Store(true)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.quarantinedID = start
	if e.known == nil {
		e.known = newIncarnation(e, start)
	}
	if e.known.id == start {
		e.known.setQuarantined()
	}
}
