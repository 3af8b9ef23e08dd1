package fleet

import "carryover/upstream"

// Started reports whether any engine of a role has ever answered.
func (f *Fleet) Started(role upstream.Role) bool { return f.rounds.answered[role].Load() }

// unasked returns the engines that have not been heard since they came or last refused a connection.
func (m *members) unasked() (all []*Engine) {
	for e := range m.all {
		if !e.Health.HasAnswered() {
			all = append(all, e)
		}
	}
	return all
}

// Up returns how many engines of a role get turns. These are the engines that have answered since they last refused a
// connection, are not down, and are neither open, ejected nor drained. If there is none of these, all engines that
// answer count, because turns go to them then: one client whose requests fail engines may open every circuit, which
// must not make the replica unready for other clients. Quarantines are not considered here. An engine that was never
// heard may be picked, but does not count.
func (f *Fleet) Up(role upstream.Role) int {
	usable, answer := 0, 0
	for _, e := range f.Engines(role) {
		switch {
		case !e.Health.HasAnswered():
		case e.Health.Usable():
			usable++
		case e.answers() && !e.seen.health.Silent(f.clock()):
			answer++
		}
	}
	if usable == 0 {
		return answer
	}
	return usable
}
