package fleet

import (
	"cmp"
	"slices"
	"time"

	"carryover/upstream"
)

// Holders are the decode engines that may hold blocks of tickets: those in the fleet, and those that have departed: they were removed from it
// within the lifetime of blocks. The process of such an engine may run on and keep the blocks of our tickets pinned until they are read,
// released or expired. The fleet remembers it so that these blocks can be released, and so that it is the same engine if its instance comes
// back. It is safe for concurrent use.
type Holders struct {
	fleet    *Fleet
	departed []*Engine // the one that was removed first comes first; the lock of the Fleet guards it
}

// All returns the engines, those of the fleet first.
func (h *Holders) All() []*Engine {
	h.fleet.mu.Lock()
	defer h.fleet.mu.Unlock()
	return append(slices.Clip(h.fleet.Engines(upstream.RoleDecode)), h.departed...)
}

// Find returns the incarnation with that id of a decode engine called name; nil if none matches. It sends nothing.
func (h *Holders) Find(name, incarnation string) *Incarnation {
	for _, e := range h.All() {
		if e.Name == name {
			if s := e.Incarnation(incarnation); s != nil {
				return s
			}
		}
	}
	return nil
}

// maxDeparted bounds the removed decode engines that are remembered. Beyond it the oldest is forgotten.
const maxDeparted = 64

// unsetKVTTL is vLLM's default of decoder_kv_blocks_ttl.
const unsetKVTTL = 8 * time.Minute

// depart remembers a removed engine if it may pin blocks of ours, and reports whether it does. It needs f.mu.
func (f *Fleet) depart(e *Engine) bool {
	if e.Role != upstream.RoleDecode || !e.lastKnown().Known() {
		return false
	}
	f.Holders.departed = append(f.Holders.departed, e)
	f.stays(e)
	return true
}

// stays sets until when an engine that gets no turn from now on may pin blocks. It needs f.mu.
func (f *Fleet) stays(e *Engine) {
	e.until = f.Now().Add(cmp.Or(max(e.Instance().KVTTL, 0), unsetKVTTL))
}

// forget drops what other engines and the prefix index know of engines that are gone, and of departed ones whose last block has expired or
// that are too many. It needs f.mu.
func (f *Fleet) forget(gone []*Engine) {
	now, h := f.Now(), f.Holders
	h.departed = slices.DeleteFunc(h.departed, func(e *Engine) bool {
		over := e.inFlight.Load() == 0 && upstream.Elapsed(e.until, now) >= 0
		if over {
			gone = append(gone, e)
		}
		return over
	})
	if n := len(h.departed) - maxDeparted; n > 0 {
		gone = append(gone, h.departed[:n]...)
		h.departed = slices.Delete(h.departed, 0, n)
	}
	if len(gone) == 0 {
		return
	}
	for _, e := range gone {
		e.forgotten.Store(true) // before the pairs go, so that no new pair is made with it
		if known := e.lastKnown(); known != nil {
			known.leave()
		}
	}
	for _, e := range f.Engines(upstream.RolePrefill) {
		if known := e.lastKnown(); known != nil {
			known.unpair(gone)
		}
	}
}

// Leaves reports whether the engine is going out of service: an operator drains it, or it was removed.
func (e *Engine) Leaves() bool { return e.gone.Load() || e.Health.Drains() }
