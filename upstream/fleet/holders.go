package fleet

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"carryover/upstream"
)

// Holders are the decode engines that may hold blocks of tickets: those in the fleet, and those that have departed: they were removed from it
// within the lifetime of blocks. The process of such an engine may run on and keep the blocks of our tickets pinned until they are read,
// released or expired. The fleet remembers it so that these blocks can be released, and so that it is the same engine if its instance comes
// back. It is safe for concurrent use.
type Holders struct {
	now func() time.Time

	mu       sync.Mutex // guards the rest. Lock order: Fleet, Holders
	departed []*Engine  // the one that was removed first comes first
	all      []*Engine  // the decode engines of the fleet, then the departed ones; replaced, never changed
}

// All returns the engines. The list is not to be changed.
func (h *Holders) All() []*Engine {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all
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

// join adds the decode engines among those that are new to the fleet, so that the holder of each turn's ticket is found.
func (h *Holders) join(added []*Engine) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = slices.Clip(h.all)
	for _, e := range added {
		if e.Role == upstream.RoleDecode && !slices.Contains(h.all, e) {
			h.all = append(h.all, e)
		}
	}
}

// depart remembers a removed engine if it may pin blocks of ours, and reports whether it does.
func (h *Holders) depart(e *Engine) bool {
	if e.Role != upstream.RoleDecode || !e.lastKnown().Known() {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.departed, e.until = append(h.departed, e), h.lastBlock(e)
	return true
}

// lastBlock returns until when an engine that gets no turn from now on may pin blocks.
func (h *Holders) lastBlock(e *Engine) time.Time {
	return h.now().Add(cmp.Or(max(e.kvTTL(), 0), unsetKVTTL))
}

// update sets the decode engines that are in the fleet. It drops the departed engines whose last block has expired, and
// the oldest beyond maxDeparted, and returns them.
func (h *Holders) update(decodes []*Engine) (over []*Engine) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	h.departed = slices.DeleteFunc(h.departed, func(e *Engine) bool {
		gone := e.inFlight.Load() == 0 && upstream.Elapsed(e.until, now) >= 0
		if gone {
			over = append(over, e)
		}
		return gone
	})
	if n := len(h.departed) - maxDeparted; n > 0 {
		over = append(over, h.departed[:n]...)
		h.departed = slices.Delete(h.departed, 0, n)
	}
	h.all = append(slices.Clip(decodes), h.departed...)
	return over
}

// rejoin removes the departed engine with that identity from the list and returns it; nil if there is none.
func (h *Holders) rejoin(id identity) *Engine {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := slices.IndexFunc(h.departed, func(e *Engine) bool { return e.identity == id })
	if at < 0 {
		return nil
	}
	e := h.departed[at]
	h.departed = slices.Delete(h.departed, at, at+1)
	return e
}

// stays extends the time for which a departed engine is remembered: an attempt that has ended may have left blocks.
func (h *Holders) stays(e *Engine) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.until = h.lastBlock(e)
}

// forgetDeparted forgets the departed engines that hold no block any more. It needs f.mu.
func (f *Fleet) forgetDeparted() { f.forget(f.Holders.update(f.Engines(upstream.RoleDecode))) }

// forget drops what other engines and the prefix index know of engines that are gone. It needs f.mu.
func (f *Fleet) forget(engines []*Engine) {
	if len(engines) == 0 {
		return
	}
	for _, e := range engines {
		e.forgotten.Store(true) // before the pairs go, so that no new pair is made with it
		if known := e.lastKnown(); known != nil {
			known.leave()
		}
	}
	for _, e := range f.Engines(upstream.RolePrefill) {
		if known := e.lastKnown(); known != nil {
			known.unpair(engines)
		}
	}
}

// Leaves reports whether the engine is going out of service: an operator drains it, or it was removed.
func (e *Engine) Leaves() bool { return e.gone.Load() || e.Health.Drains() }
