package vllmsim

import (
	"carryover/upstream/vllmsim/kvevents"
	"net/http"
)

// serveReset is POST /reset_prefix_cache, which vLLM has with VLLM_SERVER_DEV_MODE. It fails while blocks are in use, pinned blocks included
// (v1/core/block_pool.py, reset_prefix_cache). AllBlocksCleared is published with the next step (measured on 0.32).
func (i *Instance) serveReset(w http.ResponseWriter) error {
	success := true
	for _, e := range i.engines() {
		success = e.reset() && success
	}
	return writeJSON(w, http.StatusOK, map[string]bool{"success": success})
}

func (e *engine) reset() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.expire()
	if e.pool.Free < e.pool.Capacity() {
		return false
	}
	e.pool.Clear()
	e.events.Happen(kvevents.Event{Kind: kvevents.Cleared})
	return true
}

// ClearBlocks is a reset that succeeds although blocks are in use, which vLLM does not have. Pins end, their blocks and the prefix cache are
// overwritten, and AllBlocksCleared is published at once. A reader with a ticket from before reads garbage. Blocks of requests under way
// stay as they are.
func (i *Instance) ClearBlocks() {
	for _, e := range i.engines() {
		e.clearBlocks()
	}
}

func (e *engine) clearBlocks() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, p := range e.pins.held {
		e.free(p.blocks)
		e.pins.finish(id, outcomeExpired)
	}
	e.pool.Clear()
	e.events.Happen(kvevents.Event{Kind: kvevents.Cleared})
	e.events.Step()
}
