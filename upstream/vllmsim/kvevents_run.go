package vllmsim

import (
	"carryover/upstream/vllmsim/kv"
	"carryover/upstream/vllmsim/kvevents"
	"fmt"
)

// DropEvents withholds the next n batches of every rank from subscribers, as a full queue does. They can still be replayed.
func (i *Instance) DropEvents(n int) {
	for _, e := range i.engines() {
		e.events.Drop(n)
	}
}

// filed gathers events for the newly filed blocks of a run; adjacent blocks become one event. The caller holds e.mu.
func (r *run) filed(tokens []int32, hashes []uint64, fresh []int) {
	if r.engine.events == nil {
		return
	}
	size := r.engine.cfg.BlockSize
	for len(fresh) > 0 {
		n := 1
		for n < len(fresh) && fresh[n] == fresh[0]+n {
			n++
		}
		first, end := fresh[0], fresh[0]+n
		e := kvevents.Event{Kind: kvevents.Stored, Hashes: hashes[first:end], Tokens: tokens[first*size : end*size], Size: size, Adapter: r.req.adapter}
		if first > 0 {
			e.Parent = &hashes[first-1]
		}
		for block := first; block < end; block++ {
			e.Extra = append(e.Extra, r.extraKeys(block))
		}
		r.engine.events.Happen(e)
		fresh = fresh[n:]
	}
	r.engine.events.Step()
}

// extraKeys returns the inputs of a block's hash besides its tokens, nil for none (generate_block_hash_extra_keys in
// vllm/v1/core/kv_cache_utils.py).
func (r *run) extraKeys(block int) (keys []string) {
	if r.req.adapter != "" {
		keys = append(keys, r.req.adapter)
	}
	size := r.engine.cfg.BlockSize
	for at := block * size; at < (block+1)*size; at++ {
		if m := kv.MediaAt(r.req.media, at); m != 0 {
			keys = append(keys, mediaKey(m))
			break
		}
	}
	if salt := r.req.tenant(); block == 0 && salt != "" {
		keys = append(keys, salt)
	}
	return keys
}

// mediaKey returns the key of an image.
func mediaKey(media uint64) string { return fmt.Sprintf("%016x", media) }
