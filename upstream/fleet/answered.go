package fleet

import "carryover/upstream"

// heard records that the engine has answered something: a probe, a reading or a leg.
func (e *Engine) heard() {
	if !e.answered.Swap(true) {
		e.fleet.answered[e.Role].Store(true)
	}
}

// unheard records that a connection was refused, so that nothing is known of what answers there next.
func (e *Engine) unheard() { e.answered.Store(false) }

// Started reports whether any engine of a role has ever answered.
func (f *Fleet) Started(role upstream.Role) bool { return f.answered[role].Load() }

// askSoon has Run ask engines of which nothing was heard yet, without waiting for its next round: until they answer they make nothing ready.
func (f *Fleet) askSoon() {
	select {
	case f.came <- struct{}{}:
	default:
	}
}

// unasked are the engines of which nothing was heard.
func (f *Fleet) unasked() (all []*Engine) {
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		for _, e := range f.Engines(role) {
			if !e.answered.Load() {
				all = append(all, e)
			}
		}
	}
	return all
}

// Up returns how many engines of a role turns get: those that have answered since a connection to them was refused last, are not held to be
// down, with a circuit that is not open, neither ejected nor drained. Where there is none of these, turns get all that answer: requests of one
// client that engines fail over may open every circuit, and must not make a replica unready for the others. A quarantine is another matter. An
// engine of which nothing was heard yet may be picked, and does not count here.
func (f *Fleet) Up(role upstream.Role) int {
	usable, answer := 0, 0
	for _, e := range f.Engines(role) {
		switch {
		case !e.answered.Load():
		case e.usable():
			usable++
		case e.answers():
			answer++
		}
	}
	if usable == 0 {
		return answer
	}
	return usable
}
