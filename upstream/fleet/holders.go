package fleet

import (
	"cmp"
	"slices"
	"time"

	"carryover/upstream"
)

// Holders are the decode engines that may hold blocks of tickets: the fleet's, and departed ones. A departed engine was removed less than a
// block's lifetime ago; its process may still pin blocks. The fleet keeps it to release these blocks, and to get the same engine back with
// its instance. Holders is safe for concurrent use.
type Holders struct {
	fleet    *Fleet
	departed []*Engine // the first removed first; guarded by Fleet.mu
}

// All returns the engines, the fleet's first.
func (h *Holders) All() []*Engine {
	h.fleet.mu.Lock()
	defer h.fleet.mu.Unlock()
	return append(slices.Clip(h.fleet.Engines(upstream.RoleDecode)), h.departed...)
}

// Find returns an incarnation of a decode engine by name and id, nil if there is none. It sends nothing.
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

// Beyond maxDeparted the oldest is forgotten.
const maxDeparted = 64

// vLLM's default of decoder_kv_blocks_ttl.
const unsetKVTTL = 8 * time.Minute

// depart remembers a removed engine if it may pin blocks, and reports whether it does. It needs f.mu.
func (f *Fleet) depart(e *Engine) bool {
	if e.Role != upstream.RoleDecode || !e.lastKnown().Known() {
		return false
	}
	f.Holders.departed = append(f.Holders.departed, e)
	f.stays(e)
	return true
}

// stays needs f.mu.
func (f *Fleet) stays(e *Engine) {
	e.until = f.Now().Add(cmp.Or(max(e.Instance().KVTTL, 0), unsetKVTTL))
}

// forget drops what other engines and the prefix index know of engines that are gone, and of departed engines that are expired or too
// many. It needs f.mu.
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

// Leaves reports whether the engine goes out of service: drained by an operator, or removed.
func (e *Engine) Leaves() bool { return e.gone.Load() || e.Health.Drains() }
