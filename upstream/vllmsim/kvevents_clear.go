package vllmsim

import "net/http"

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
	if e.pool.free < e.pool.capacity() {
		return false
	}
	e.pool.clear()
	e.events.happen(kvEvent{kind: allBlocksCleared})
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
	e.pool.clear()
	e.events.happen(kvEvent{kind: allBlocksCleared})
	e.events.step()
}

// clear forgets the prefix cache, and overwrites the blocks that no request uses.
func (p *pool) clear() {
	clear(p.cached)
	for id := range p.blocks {
		b := &p.blocks[id]
		b.hash = 0
		if b.refs > 0 {
			continue
		}
		slots := p.slots(int32(id))
		for n := range slots {
			slots[n] = mix(slots[n] ^ mixGamma)
		}
	}
}
