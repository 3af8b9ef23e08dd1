package fleet

import (
	"slices"
	"time"

	"carryover/upstream"
)

// Each pick asks of each candidate whether all pairs of an incarnation are stopped, and there may be a million pairs.
// So each incarnation counts its stopped pairs, and the picker counts all. While the picker's count is 0, which is
// nearly always, picks ask nothing; they look at the pairs of an incarnation only if its count is high enough. A pair
// whose stop is over stays counted until it answers or is dropped, so the counts are upper bounds.

// stopDecode marks the candidates whose pairs with all prefill engines are stopped. A candidate without pairs is not
// marked. It needs k.mu.
func (k *Picker) stopDecode(now time.Time) {
	prefills := k.members.Load().engines[upstream.RolePrefill]
	p := &k.picking
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
// needs k.mu.
func (k *Picker) stopPrefill(hint *Hint, now time.Time) {
	p := &k.picking
	p.holders = p.holders[:0]
	at := now.Sub(k.born)
	for i := range hint.Holds {
		holding := &hint.Holds[i]
		if e := k.members.Load().named[upstream.RoleDecode][holding.Decode]; e != nil {
			if last := e.seen.last.Load(); e.seen.health.Answers(at) && last.Known() && last.id == holding.Incarnation {
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
