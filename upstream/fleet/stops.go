package fleet

import (
	"slices"
	"time"

	"carryover/upstream"
)

// Whether all links of a start are stopped is asked of each candidate of each pick, and there may be a million links. So each
// start counts how many of its links are stopped, and the fleet how many are in all: as long as none is, which is nearly always,
// nothing is asked, and only where the number suffices the links are looked at. A link that is left alone no longer stays in the
// numbers until it answers or goes: they are upper bounds.

// count has the link among the stopped ones or not. It needs l.mu.
func (ps *PairState) count(stopped bool) {
	if stopped == ps.counted || ps.over || ps.dropped {
		return
	}
	ps.counted = stopped
	change := int32(1)
	if !stopped {
		change = -1
	}
	ps.prefill.stops.Add(change)
	ps.decode.stops.Add(change)
	ps.decode.engine.fleet.stops.Add(int64(change))
}

// drop takes the link out of the numbers when it goes.
func (ps *PairState) drop() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.count(false)
	ps.dropped = true
}

// stopped reports whether Begin would say NoReuse.
func (ps *PairState) stopped(now time.Time) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return !ps.trials.proven && !ps.trials.trial && now.Before(ps.trials.until)
}

// stoppedWith reports whether the link of this start of prefill and one of decode is stopped. Two that have no link have not
// been tried.
func (s *Incarnation) stoppedWith(decode *Incarnation, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ps := s.pairs[decode.engine]
	return ps != nil && ps.decode == decode && ps.stopped(now)
}

// stopDecode marks the candidates whose links with all prefill engines are stopped. No link at all is not a stopped one. It
// needs f.mu.
func (f *Fleet) stopDecode(now time.Time) {
	prefills := f.engines[upstream.RolePrefill]
	p := &f.picking
	for i, e := range p.engines {
		decode := e.seen.last.Load()
		p.candidates[i].Stopped = len(prefills) > 0 && decode.Known() && int(decode.stops.Load()) >= len(prefills) &&
			!slices.ContainsFunc(prefills, func(e *Engine) bool {
				prefill := e.seen.last.Load()
				return !prefill.Known() || !prefill.stoppedWith(decode, now)
			})
	}
}

// stopPrefill marks the candidates whose links with all starts that hold KV of the conversation are stopped. It needs f.mu.
func (f *Fleet) stopPrefill(hint *Hint, now time.Time) {
	p := &f.picking
	p.holders = p.holders[:0]
	at := now.Sub(f.born)
	for i := range hint.Holds {
		holding := &hint.Holds[i]
		if e := f.named[upstream.RoleDecode][holding.Decode]; e != nil {
			if last := e.seen.last.Load(); e.seen.answers(at) && last.Known() && last.id == holding.Incarnation {
				p.holders = append(p.holders, last)
			}
		}
	}
	for i, e := range p.engines {
		prefill := e.seen.last.Load()
		p.candidates[i].Stopped = len(p.holders) > 0 && prefill.Known() && prefill.stops.Load() > 0 &&
			!slices.ContainsFunc(p.holders, func(decode *Incarnation) bool { return !prefill.stoppedWith(decode, now) })
	}
	clear(p.holders)
}
