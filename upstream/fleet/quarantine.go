package fleet

import "slices"

// quarantine belongs to an engine that is gone: discovery may lose an instance for a moment and then find the same
// incarnation.
type quarantine struct {
	location
	incarnation *string
}

// Beyond maxAway the oldest is dropped.
const maxAway = 64

// Quarantine records that this prefill incarnation computed other token ids than it got. Its prefix cache then has KV
// of other tokens under the right hashes, and serves it to every prompt that begins with them until the engine
// restarts. The quarantine survives the engine's absence from the fleet.
func (i *Incarnation) Quarantine() {
	e, f, id := i.engine, i.engine.fleet, i.id
	f.mu.Lock()
	defer f.mu.Unlock()
	e.quarantined.Store(&id)
	if e.gone.Load() { // removed after the leg that found this had begun
		f.outlasts(e, f.Engines(e.Role))
	}
}

// Quarantined reports whether the incarnation is quarantined.
func (i *Incarnation) Quarantined() bool {
	quarantined := i.engine.quarantined.Load()
	return quarantined != nil && *quarantined == i.id
}

// Quarantined reports whether no prefill leg may go to the engine. While its incarnation is unknown, an earlier
// quarantine of any incarnation counts, because two processes may answer at one address.
func (e *Engine) Quarantined() bool {
	if e.quarantined.Load() == nil { // the cheap test first: picks ask each candidate
		return false
	}
	incarnation := e.Fresh()
	return !incarnation.Known() || incarnation.Quarantined()
}

// outlasts gives the quarantine of a removed engine to the engine at its location, or keeps it until there is one. A quarantine of an unknown
// incarnation is dropped, because nothing could match it. It needs f.mu.
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

// returns needs f.mu.
func (f *Fleet) returns(e *Engine) {
	f.away = slices.DeleteFunc(f.away, func(b quarantine) bool {
		if b.location == e.location {
			e.quarantined.Store(b.incarnation)
		}
		return b.location == e.location
	})
}
