package prefixindex

import "sync"

// Blocks are consecutive blocks that an engine has added to its prefix cache.
type Blocks struct {
	Parent  uint64   // the engine's hash of the block before the first
	Root    bool     // no block comes before the first
	Hashes  []uint64 // the engine's, one per block
	Tokens  []uint32 // Size per block
	Size    int
	Adapter string   // LoRA adapter, "" for none
	Extra   []string // what else each block's hash depends on, "" for nothing; nil if all are ""
}

// MaxCachedBlocks bounds the recorded blocks of an engine; beyond it, none is recorded. That many take some 45 MB; a
// cache of a million tokens in blocks of 16 takes 3 MB.
const MaxCachedBlocks = 1 << 20

// Cache is the content of a prefill engine's prefix cache by its KV events: which prompt ends with each block. Block
// hashes of different engines do not compare, because each engine seeds them at its start (PYTHONHASHSEED).
type Cache struct {
	index *Index
	place *Place
	gone  func() bool
	slot  int // index, from 1, in Index.caches; 0 if the blocks are unknown; guarded by index.mu

	mu     sync.Mutex             // guards the rest. Lock order: the caller's, Cache, Index
	blocks map[uint64]cachedBlock // nil unless complete
}

// NewCache returns a cache of unknown content. Picks write the engine's place.
func (p *Index) NewCache(place *Place, gone func() bool) *Cache {
	return &Cache{index: p, place: place, gone: gone}
}

type cachedBlock struct {
	prefix uint64 // hash of the prompt up to the block's end
	end    uint32 // in tokens of the prompt
	size   uint32
}

func (c cachedBlock) mark() uint64 {
	if marks(int(c.end), int(c.size)) {
		return c.prefix
	}
	return 0
}

// Count returns the number of recorded blocks, -1 if they are not known completely.
func (c *Cache) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blocks == nil {
		return -1
	}
	return len(c.blocks)
}

// Started records that the engine's prefix cache is empty and that all changes will be reported. Picks judge such an
// engine by its blocks, and others by the prompts sent to them.
func (c *Cache) Started() { c.forget(true) }

// Lost records that the content of the prefix cache is no longer known.
func (c *Cache) Lost() { c.forget(false) }

// forget drops the blocks. known means that the prefix cache is empty, so that the empty record is complete.
func (c *Cache) forget(known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known = known && !c.gone()
	c.index.forget(c, c.blocks, known)
	if c.blocks = nil; known {
		c.blocks = map[uint64]cachedBlock{}
	}
}

// Stored records added blocks. It ignores blocks whose parent is unknown.
func (c *Cache) Stored(b Blocks) {
	p := c.index
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blocks == nil || b.Size <= 0 {
		return
	}
	at := cachedBlock{prefix: p.root(b.Adapter)}
	if !b.Root {
		parent, found := c.blocks[b.Parent]
		if !found {
			return
		}
		at = parent
	}
	var added, removed []uint64
	for i, hash := range b.Hashes {
		if b.Extra != nil && b.Extra[i] != "" {
			at.prefix = mixText(at.prefix, b.Extra[i])
		}
		at.prefix = prefixHash(at.prefix, b.Tokens[i*b.Size:(i+1)*b.Size])
		at.end, at.size = at.end+uint32(b.Size), uint32(b.Size)
		if mark := c.blocks[hash].mark(); mark != 0 {
			removed = append(removed, mark)
		}
		c.blocks[hash] = at
		if mark := at.mark(); mark != 0 {
			added = append(added, mark)
		}
		if len(c.blocks) > MaxCachedBlocks {
			p.holds(c, nil, removed)
			p.forget(c, c.blocks, false)
			c.blocks = nil
			return
		}
	}
	p.holds(c, added, removed)
}

// Removed records evicted blocks.
func (c *Cache) Removed(hashes []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var removed []uint64
	for _, hash := range hashes {
		if mark := c.blocks[hash].mark(); mark != 0 {
			removed = append(removed, mark)
		}
		delete(c.blocks, hash)
	}
	c.index.holds(c, nil, removed)
}
