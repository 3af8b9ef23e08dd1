package fleet

import (
	"time"

	"carryover/upstream"
)

// maxCleared bounds the engines that are gone whose last clearing is remembered.
const maxCleared = 1024

// BlocksCleared records that the engine published AllBlocksCleared at a time: what it held for a next turn is gone, or
// about to be overwritten. vLLM 0.32 clears its cache only when no block is in use, so nothing was pinned then
// (v1/core/block_pool.py, reset_prefix_cache), and publishes the event with its next step. The record belongs to the
// engine and not to an incarnation, because the event may be the first sign of a new one.
func (e *Engine) BlocksCleared(at time.Time) {
	e.clearing.Record(at)
	known := e.lastKnown()
	e.Cache.Started()
	if known != nil {
		known.Pins.Drop(at)
	}
}

// clearings are when decode engines that are gone cleared their caches, by name. The Fleet's lock guards them.
type clearings map[string]time.Time

// keep remembers when an engine that is gone cleared its cache. The next engine of its name may be the same process, as
// after a reload that changes its weight, and may hold its tickets.
func (c clearings) keep(e *Engine) {
	cleared := e.clearing.Last()
	if cleared == nil || e.Role != upstream.RoleDecode {
		return
	}
	for name := range c {
		if len(c) < maxCleared {
			break
		}
		delete(c, name) // any of them: no fleet loses so many engines within the life of a ticket
	}
	c[e.Name] = *cleared
}

// restore gives a new engine the clearing that was remembered for its name.
func (c clearings) restore(e *Engine) {
	if cleared, found := c[e.Name]; found && e.Role == upstream.RoleDecode && e.clearing.Last() == nil {
		e.clearing.Record(cleared)
	}
}
