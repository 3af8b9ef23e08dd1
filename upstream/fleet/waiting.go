package fleet

import "carryover/upstream/fleet/unused"

// TakeUnused returns the oldest unused ticket of the decode incarnation that this prefill incarnation may release now,
// on a leg of our own or on a turn's leg. There is none while the two have exchanged no KV or the pair pauses its
// releases. The ticket counts as in transfer until Leave or EndTransfer of the decode incarnation's Pins.
func (s *Incarnation) TakeUnused(decode *Incarnation, own bool) (unused.Ticket, bool) {
	if p := s.PairWith(decode); p.CarriesReleases() || own && p.Releases() {
		return decode.Pins.Take(s, own)
	}
	return unused.Ticket{}, false
}

// Waiting returns the decode incarnations that have unused tickets and are alive as far as is known. Those of removed
// engines are among them.
func (f *Fleet) Waiting() (all []*Incarnation) {
	for _, e := range f.Holders() {
		if last := e.Last(); last.Pins.Waits() {
			all = append(all, last)
		}
	}
	return all
}

// Due returns the decode incarnations that have more unused tickets than backlog, or one that has waited for some
// seconds. It marks their engines, which are left out until Done. The caller must check that an incarnation is alive
// before it releases.
func (f *Fleet) Due(backlog int) (all []*Incarnation) {
	for _, e := range f.Holders() {
		if s := e.due(backlog); s != nil {
			all = append(all, s)
		}
	}
	return all
}

// due returns the engine's incarnation if its tickets are to be released now, else nil, and marks the engine.
func (e *Engine) due(backlog int) *Incarnation {
	s := e.lastKnown()
	if s == nil || e.releases.Load() || !s.Pins.Due(backlog) || !e.releases.CompareAndSwap(false, true) {
		return nil
	}
	return s
}

// Done ends what Due began.
func (s *Incarnation) Done() { s.engine.releases.Store(false) }
