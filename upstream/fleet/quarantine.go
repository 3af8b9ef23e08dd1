package fleet

import "slices"

// quarantine is the quarantine of an engine that is gone: discovery may lose an instance for a moment and then find
// the same incarnation again.
type quarantine struct {
	location
	incarnation *string
}

// maxAway bounds the quarantines of engines that are gone. Beyond it the oldest is dropped.
const maxAway = 64

// Quarantine records that this prefill incarnation has computed other token ids than it was sent. Its prefix cache
// then holds KV of other tokens under the right hashes, and serves it to every request that begins with these tokens,
// until the engine is restarted. The quarantine outlasts the engine's absence from the fleet.
func (i *Incarnation) Quarantine() {
	e, f, id := i.engine, i.engine.fleet, i.id
	f.mu.Lock()
	defer f.mu.Unlock()
	e.quarantined.Store(&id)
	if e.gone.Load() { // it was removed after the leg that found this had begun
		f.outlasts(e, f.Engines(e.Role))
	}
}

// Quarantined reports whether the incarnation is quarantined.
func (i *Incarnation) Quarantined() bool {
	quarantined := i.engine.quarantined.Load()
	return quarantined != nil && *quarantined == i.id
}

// Quarantined reports whether no prefill leg may go to the engine. While the engine's incarnation is not known, any
// incarnation that was ever quarantined counts, because two processes may answer behind one address.
func (e *Engine) Quarantined() bool {
	if e.quarantined.Load() == nil { // the cheap test first: picks ask each candidate
		return false
	}
	incarnation := e.Fresh()
	return !incarnation.Known() || incarnation.Quarantined()
}

// outlasts hands the quarantine of an engine that is gone to the engine at its location among those that stay, or remembers it until there is
// one. An incarnation that is not known would not be found again. It needs f.mu.
func (f *Fleet) outlasts(gone *Engine, stay []*Engine) {
	incarnation := gone.quarantined.Load()
	if *incarnation == "" {
		return
	}
	for _, e := range stay {
		if e.location == gone.location {
			e.quarantined.Store(incarnation)
			return
		}
	}
	f.away = slices.DeleteFunc(f.away, func(old quarantine) bool { return old.location == gone.location })
	if len(f.away) == maxAway {
		f.away = slices.Delete(f.away, 0, 1)
	}
	f.away = append(f.away, quarantine{gone.location, incarnation})
}

// returns gives a new engine the quarantine that was remembered for its location. It needs f.mu.
func (f *Fleet) returns(e *Engine) {
	f.away = slices.DeleteFunc(f.away, func(b quarantine) bool {
		if b.location == e.location {
			e.quarantined.Store(b.incarnation)
		}
		return b.location == e.location
	})
}
