package kvevents

import "time"

// Sink receives the events of one engine's KV cache, from one goroutine. Its arguments are valid during the call only.
type Sink interface {
	// Started says that the cache is empty and that all events follow.
	Started()
	// Stored says that blocks were added to the prefix cache.
	Stored(Blocks)
	// Removed says that blocks were removed from it.
	Removed(hashes []uint64)
	// Cleared says that the cache was cleared at that time, blocks that requests had pinned included, and that all
	// events follow. The time is ours when the event is live, and the engine's when it is replayed.
	Cleared(at time.Time)
	// Lost says that events are missing: the content of the cache is not known.
	Lost()
}

// Blocks are consecutive blocks of a prompt or its answer in the prefix cache.
type Blocks struct {
	Parent  uint64   // hash of the block before the first
	Root    bool     // there is no block before: they begin a prompt
	Hashes  []uint64 // one per block
	Tokens  []uint32 // of all blocks, Size for each
	Size    int
	Adapter string // the LoRA adapter that computed them, "" for none
	// Extra is what else the hash of each block depends on, as text: the cache salt of a prompt's first block, images.
	// nil if nothing else.
	Extra []string
}
