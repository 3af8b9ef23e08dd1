package fleet

import (
	"slices"
	"time"

	"carryover/upstream"
)

// maxDeparted bounds the decode engines that are kept after they were removed. Where there are more, the first that went is forgotten.
const maxDeparted = 64

// unsetKVTTL is vLLM's own decoder_kv_blocks_ttl.
const unsetKVTTL = 8 * time.Minute

// departed is a decode engine that was removed from the fleet. Its process may run on, and pins the blocks of our tickets until they
// are read, released or past their time: what is known of it is needed for that, and it is the same engine if its instance comes back.
type departed struct {
	engine *Engine
	until  time.Time // none of its blocks lives longer
}

// depart keeps an engine that is gone, if blocks of ours may be on it, and reports whether it does. It needs f.mu.
func (f *Fleet) depart(e *Engine) bool {
	e.mu.Lock()
	known := e.known
	e.mu.Unlock()
	if e.Role != upstream.RoleDecode || !known.Known() {
		return false
	}
	f.departed = append(f.departed, departed{e, f.lastBlock(e)})
	return true
}

// lastBlock is until when blocks may be pinned on an engine that gets no turn from now on.
func (f *Fleet) lastBlock(e *Engine) time.Time {
	ttl := e.Instance().KVTTL
	if ttl <= 0 {
		ttl = unsetKVTTL
	}
	return f.now().Add(ttl)
}

// forgetDeparted forgets the engines whose last block has ended, and those that are too many, and lists which engines may hold
// blocks. It needs f.mu.
func (f *Fleet) forgetDeparted() {
	now := f.now()
	var over []*Engine
	f.departed = slices.DeleteFunc(f.departed, func(d departed) bool {
		if d.engine.inFlight.Load() > 0 || upstream.Elapsed(d.until, now) < 0 {
			return false
		}
		over = append(over, d.engine)
		return true
	})
	for n := len(f.departed) - maxDeparted; n > 0; n-- {
		over = append(over, f.departed[0].engine)
		f.departed = slices.Delete(f.departed, 0, 1)
	}
	f.forget(over)
	f.holders = f.engines[upstream.RoleDecode]
	if len(f.departed) > 0 {
		f.holders = slices.Clone(f.holders)
		for _, d := range f.departed {
			f.holders = append(f.holders, d.engine)
		}
	}
}

// forget ends what is shared with engines that are gone. It needs f.mu.
func (f *Fleet) forget(engines []*Engine) {
	if len(engines) == 0 {
		return
	}
	for _, e := range engines {
		e.forgotten.Store(true) // before the links go: none is made to it from here on
		e.leave()
	}
	for _, e := range f.engines[upstream.RolePrefill] {
		e.unpair(engines)
	}
}

// rejoin returns the departed engine of an identity, which is none any more; nil if there is none. It needs f.mu.
func (f *Fleet) rejoin(id identity) *Engine {
	at := slices.IndexFunc(f.departed, func(d departed) bool { return d.engine.identity == id })
	if at < 0 {
		return nil
	}
	e := f.departed[at].engine
	f.departed = slices.Delete(f.departed, at, at+1)
	return e
}

// stays lengthens the time for which a departed engine is kept: an attempt of it has just ended, and may have left blocks. It needs
// f.mu.
func (f *Fleet) stays(e *Engine) {
	for i := range f.departed {
		if f.departed[i].engine == e {
			f.departed[i].until = f.lastBlock(e)
		}
	}
}

// Holders returns the decode engines that may hold blocks of tickets: those of the fleet, and those that were removed from it
// within the time for which blocks live. The list is not to be changed.
func (f *Fleet) Holders() []*Engine {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.holders
}

// Holder returns the start with that id of a decode engine of that name, nil if none of those that may hold blocks has it. Nothing
// is asked of the engine.
func (f *Fleet) Holder(name, start string) *Incarnation {
	for _, e := range f.Holders() {
		if e.Name == name {
			if s := e.Incarnation(start); s != nil {
				return s
			}
		}
	}
	return nil
}

// Leaves reports whether the engine is to be out of service: an operator drains it, or it was removed.
func (e *Engine) Leaves() bool { return e.gone.Load() || e.drains() }

// Over reports whether nothing can be had of the start any more: another start has taken its place, or the fleet has forgotten its
// engine.
func (s *Incarnation) Over() bool { return !s.current() }
