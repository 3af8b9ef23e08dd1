package fleet

import (
	"slices"
	"time"

	"carryover/upstream"
)

// maxDeparted bounds the removed decode engines that are remembered. Beyond it the one that was removed first is
// forgotten.
const maxDeparted = 64

// unsetKVTTL is vLLM's default of decoder_kv_blocks_ttl.
const unsetKVTTL = 8 * time.Minute

// departed is a decode engine that was removed from the fleet. Its process may run on and keep the blocks of our
// tickets pinned until they are read, released or expired. The fleet remembers it so that these blocks can be
// released, and so that it is the same engine if its instance comes back.
type departed struct {
	engine *Engine
	until  time.Time // all its blocks have expired by then
}

// depart remembers a removed engine if it may pin blocks of ours, and reports whether it does. It needs f.mu.
func (f *Fleet) depart(e *Engine) bool {
	known := e.lastKnown()
	if e.Role != upstream.RoleDecode || !known.Known() {
		return false
	}
	f.departed = append(f.departed, departed{e, f.lastBlock(e)})
	return true
}

// lastBlock returns until when an engine that gets no turn from now on may pin blocks.
func (f *Fleet) lastBlock(e *Engine) time.Time {
	ttl := e.Instance().KVTTL
	if ttl <= 0 {
		ttl = unsetKVTTL
	}
	return f.now().Add(ttl)
}

// forgetDeparted forgets the departed engines whose last block has expired, and the oldest beyond maxDeparted. Then it
// rebuilds the list of engines that may hold blocks. It needs f.mu.
func (f *Fleet) forgetDeparted() {
	now := f.now()
	var over []*Engine
	f.departed = slices.DeleteFunc(f.departed, func(d departed) bool {
		if d.engine.attempts.inFlight.Load() > 0 || upstream.Elapsed(d.until, now) < 0 {
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

// forget drops what other engines and the prefix index know of engines that are gone. It needs f.mu.
func (f *Fleet) forget(engines []*Engine) {
	if len(engines) == 0 {
		return
	}
	for _, e := range engines {
		e.member.forgotten.Store(true) // before the pairs go, so that no new pair is made with it
		if known := e.lastKnown(); known != nil {
			known.leave()
		}
	}
	for _, e := range f.engines[upstream.RolePrefill] {
		if known := e.lastKnown(); known != nil {
			known.unpair(engines)
		}
	}
}

// rejoin removes the departed engine with that identity from the list and returns it; nil if there is none. It needs
// f.mu.
func (f *Fleet) rejoin(id identity) *Engine {
	at := slices.IndexFunc(f.departed, func(d departed) bool { return d.engine.identity == id })
	if at < 0 {
		return nil
	}
	e := f.departed[at].engine
	f.departed = slices.Delete(f.departed, at, at+1)
	return e
}

// stays extends the time for which a departed engine is remembered: one of its attempts has just ended and may have
// left pinned blocks. It needs f.mu.
func (f *Fleet) stays(e *Engine) {
	for i := range f.departed {
		if f.departed[i].engine == e {
			f.departed[i].until = f.lastBlock(e)
		}
	}
}

// Holders returns the decode engines that may hold blocks of tickets: those in the fleet, and those removed from it
// within the lifetime of blocks. The list is not to be changed.
func (f *Fleet) Holders() []*Engine {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.holders
}

// Holder returns the incarnation with the id start of a decode engine called name, among the engines that may hold
// blocks; nil if none matches. It sends nothing.
func (f *Fleet) Holder(name, incarnation string) *Incarnation {
	for _, e := range f.Holders() {
		if e.Name == name {
			if s := e.Incarnation(incarnation); s != nil {
				return s
			}
		}
	}
	return nil
}

// Leaves reports whether the engine is going out of service: an operator drains it, or it was removed.
func (e *Engine) Leaves() bool { return e.member.gone.Load() || e.Health.Drains() }

// Over reports whether the incarnation has ended: the engine has restarted since, or the fleet has forgotten the
// engine.
func (s *Incarnation) Over() bool { return !s.current() }
