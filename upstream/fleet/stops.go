package fleet

import (
	"slices"
	"time"

	"carryover/upstream"
)

// Each pick asks of each candidate whether all pairs of an incarnation are stopped, and there may be a million pairs.
// So each incarnation counts its stopped pairs, and the fleet counts all. While the fleet's count is 0, which is
// nearly always, picks ask nothing; they look at the pairs of an incarnation only if its count is high enough. A pair
// whose stop is over stays counted until it answers or is dropped, so the counts are upper bounds.

// count adds the pair to the stopped ones, or removes it. It needs ps.mu.
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

// drop removes the pair from the counts when an incarnation drops it.
func (ps *PairState) drop() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.count(false)
	ps.dropped = true
}

// stopped reports whether Begin would return NoReuse.
func (ps *PairState) stopped(now time.Time) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return !ps.trials.proven && !ps.trials.trial && now.Before(ps.trials.until)
}

// stoppedWith reports whether the pair of this prefill incarnation and a decode incarnation is stopped. A pair without
// a state was never tried, and is not stopped.
func (s *Incarnation) stoppedWith(decode *Incarnation, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ps := s.pairs[decode.engine]
	return ps != nil && ps.decode == decode && ps.stopped(now)
}

// stopDecode marks the candidates whose pairs with all prefill engines are stopped. A candidate without pairs is not
// marked. It needs f.mu.
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

// stopPrefill marks the candidates whose pairs with all incarnations that hold KV of the conversation are stopped. It
// needs f.mu.
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
