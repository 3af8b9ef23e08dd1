package kvevents

import "time"

// Sink is told what becomes of the KV cache of one engine, by one goroutine. What it is given is valid during the call.
type Sink interface {
	// Started says that the cache is empty and that all events follow.
	Started()
	// Stored says that blocks have been filed in the prefix cache.
	Stored(Blocks)
	// Removed says that blocks are not in it any more.
	Removed(hashes []uint64)
	// Cleared says that at that time all blocks were gone, those too that requests had pinned, and that all events follow. It is the time
	// when we heard of it; of what was replayed, because we were not there to hear it, it is the engine's own.
	Cleared(at time.Time)
	// Lost says that events are missing: what is in the cache is not known.
	Lost()
}

// Blocks are blocks of the prefix cache that follow one another in a prompt or its answer.
type Blocks struct {
	Parent  uint64   // hash of the block before them
	Root    bool     // there is none: they begin a prompt
	Hashes  []uint64 // of each
	Tokens  []uint32 // of all of them, Size for each
	Size    int
	Adapter string // the LoRA adapter that computed them, "" for none
	// Extra is what else the hash of each block depends on, as text: the cache salt of a prompt's first block, images. nil if there
	// is nothing of the kind.
	Extra []string
}
