package fleet

import "slices"

// quarantine is the quarantine of an engine that is gone: discovery may lose an instance for a moment and then find
// the same incarnation again.
type quarantine struct {
	location
	incarnation string
}

// maxAway bounds the quarantines of engines that are gone. Beyond it the oldest is dropped.
const maxAway = 64

// Quarantine records that this prefill incarnation has computed other token ids than it was sent. Its prefix cache
// then holds KV of other tokens under the right hashes, and serves it to every request that begins with these tokens,
// until the engine is restarted. The quarantine outlasts the engine's absence from the fleet.
func (i *Incarnation) Quarantine() {
	i.setQuarantined()
	if !i.Known() {
		return
	}
	e := i.engine
	e.quarantines(i.id)
	f := e.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.member.gone.Load() { // it was removed after the leg that found this had begun
		f.removed.away.file(quarantine{e.location, i.id}, f.Engines(e.Role))
	}
}

func (i *Incarnation) setQuarantined() {
	i.engine.seen.suspected.Store(true)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.quarantined = true
}

// Quarantined reports whether the incarnation is quarantined.
func (i *Incarnation) Quarantined() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.quarantined
}

// Quarantined reports whether no prefill leg may go to the engine. While the engine's incarnation is not known, any
// incarnation that was ever quarantined counts, because two processes may answer behind one address.
func (e *Engine) Quarantined() bool {
	if !e.seen.suspected.Load() { // the cheap test first: picks ask each candidate
		return false
	}
	incarnation := e.Fresh()
	if incarnation.Known() || incarnation.Quarantined() {
		return incarnation.Quarantined()
	}
	return e.quarantinedBefore()
}

// quarantines records which incarnation was quarantined: two processes behind one address may answer by turns.
func (r *readings) quarantines(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.quarantinedID = id
}

// quarantinedBefore reports whether any incarnation was quarantined.
func (r *readings) quarantinedBefore() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.quarantinedID != "" || r.known != nil && r.known.Quarantined()
}

// quarantines are those of engines that are gone, the oldest first. The Fleet's lock guards them.
type quarantines []quarantine

// keep remembers the quarantine of an engine that is being removed, or hands it to the engine at its location among those
// that stay.
func (q *quarantines) keep(e *Engine, stay []*Engine) {
	if last := e.lastKnown(); last != nil && last.Quarantined() {
		q.file(quarantine{e.location, last.id}, stay)
	}
}

// file hands a quarantine to the engine at its location, or remembers it until there is one.
func (q *quarantines) file(b quarantine, engines []*Engine) {
	for _, e := range engines {
		if e.location == b.location {
			e.restore(b.incarnation)
			return
		}
	}
	*q = slices.DeleteFunc(*q, func(old quarantine) bool { return old.location == b.location })
	if len(*q) == maxAway {
		*q = slices.Delete(*q, 0, 1)
	}
	*q = append(*q, b)
}

// restore gives a new engine the quarantine that was remembered for its location.
func (q *quarantines) restore(e *Engine) {
	*q = slices.DeleteFunc(*q, func(b quarantine) bool {
		if b.location != e.location {
			return false
		}
		e.restore(b.incarnation)
		return true
	})
}

// restore quarantines the incarnation with that id. Until a reading says otherwise, it counts as the engine's
// incarnation.
func (r *readings) restore(incarnation string) {
	r.engine.seen.suspected.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.quarantinedID = incarnation
	if r.known == nil {
		r.known = newIncarnation(r.engine, incarnation)
	}
	if r.known.id == incarnation {
		r.known.setQuarantined()
	}
}
