package kvevents

// Sink receives the events of one engine's KV cache, from one goroutine. Its arguments are valid during the call only.
type Sink interface {
	// Started says that the cache is empty, because the engine has started or has cleared it, and that no later event will be missing.
	Started()
	// Stored says that blocks were added to the prefix cache.
	Stored(Blocks)
	// Removed says that blocks were removed from it.
	Removed(hashes []uint64)
	// Lost says that events may be missing: the content of the cache is not known.
	Lost()
}

// Blocks are consecutive blocks of a prompt or its answer in the prefix cache.
type Blocks struct {
	Parent  uint64   // hash of the block before the first
	Root    bool     // there is no block before the first: the blocks begin a prompt
	Hashes  []uint64 // one for each block
	Tokens  []uint32 // the tokens of all blocks, Size for each
	Size    int
	Adapter string // the LoRA adapter that computed them, "" for none
	// Extra has for each block, as text, what else its hash depends on: the cache salt in a prompt's first block, and images.
	// It is nil if the hashes depend on nothing else.
	Extra []string
}
