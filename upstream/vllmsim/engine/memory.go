package engine

import (
	"fmt"

	"carryover/upstream/vllmsim/kvevents"
)

// Fill copies KV of the beginning of the prompt into the blocks of the request, behind the own prefix cache. It returns false if that cache
// already has all of it.
func (r *Run) Fill(content []uint64) bool {
	e := r.Engine
	e.Mu.Lock()
	defer e.Mu.Unlock()
	if len(content) <= r.Local {
		return false
	}
	r.External = len(content) - r.Local
	e.Stats.Loads++
	for at := r.Local; at < len(content); at++ {
		*e.Pool.Slot(r.Blocks, at) = content[at]
	}
	return true
}

// Content returns the KV of the prompt.
func (r *Run) Content() []uint64 {
	r.Engine.Mu.Lock()
	defer r.Engine.Mu.Unlock()
	content := make([]uint64, len(r.Req.Prompt))
	for at := range content {
		content[at] = *r.Engine.Pool.Slot(r.Blocks, at)
	}
	return content
}

// Count adds n to one of the statistics.
func (e *Engine) Count(counter *int, n int) {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	*counter += n
}

// Free frees blocks and wakes the first request that waits for blocks. The caller holds e.Mu.
func (e *Engine) Free(blocks []int32) {
	if len(blocks) == 0 {
		return
	}
	e.Pool.Release(blocks)
	e.waiting.call()
}

// Reset empties the cache, unless blocks are in use.
func (e *Engine) Reset() bool {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	e.Expire()
	if e.Pool.Free < e.Pool.Capacity {
		return false
	}
	e.Pool.Clear()
	e.Events.Happen(kvevents.Event{Kind: kvevents.Cleared})
	return true
}

// ClearBlocks drops every block, even blocks that wait for a reader.
func (e *Engine) ClearBlocks() {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	for id, p := range e.Pins.Held {
		e.Free(p.Blocks)
		e.Pins.Finish(id, outcomeExpired)
	}
	e.Pool.Clear()
	e.Events.Happen(kvevents.Event{Kind: kvevents.Cleared})
	e.Events.Step()
}

// ReadBlocks answers a peer's read.
func (e *Engine) ReadBlocks(req SideRequest) (content []uint64, v Verdict, err error) {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	for _, id := range req.Blocks {
		if id < 0 || int(id) > e.Pool.Capacity {
			return nil, v, fmt.Errorf("descriptor of block %d: not in the registered memory", id)
		}
	}
	e.beginRead(req)
	content = make([]uint64, 0, len(req.Blocks)*e.Cfg.BlockSize)
	for _, id := range req.Blocks {
		content = append(content, e.Pool.Slots(id)...)
	}
	e.astray(req, content)
	return content, e.judge(req), nil
}
