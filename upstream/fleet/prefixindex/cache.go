package prefixindex

import "sync"

// Blocks are consecutive blocks that an engine has added to its prefix cache.
type Blocks struct {
	Parent  uint64   // the engine's hash of the block before the first
	Root    bool     // there is no block before the first
	Hashes  []uint64 // the engine's hash of each block
	Tokens  []uint32 // of all blocks, Size for each
	Size    int
	Adapter string   // the LoRA adapter that computed them, "" for none
	Extra   []string // per block: what else its hash depends on, "" for nothing; nil if that is so for all
}

// MaxCachedBlocks bounds the blocks that are recorded of one engine; of an engine with more, none is. The full number
// takes some 45 MB; a cache of a million tokens in blocks of 16 takes 3 MB.
const MaxCachedBlocks = 1 << 20

// Cache is the content of a prefill engine's prefix cache, as its KV events tell it: for the engine's hash of each
// block, which prompt ends with that block. Hashes of different engines can't be compared: each engine seeds them when it
// starts (PYTHONHASHSEED).
type Cache struct {
	index *Index
	place *Place      // of the engine
	gone  func() bool // whether the engine was removed
	slot  int         // index, from 1, in Index.caches; 0 if the cached blocks are not known. index.mu guards it

	mu     sync.Mutex             // guards the rest. Lock order: the caller's, Cache, Index
	blocks map[uint64]cachedBlock // nil if the record is not complete
}

// NewCache returns the cache of an engine, of which nothing is known. place is where picks note the engine.
func (p *Index) NewCache(place *Place, gone func() bool) *Cache {
	return &Cache{index: p, place: place, gone: gone}
}

// cachedBlock is the end of a block in a prompt.
type cachedBlock struct {
	prefix uint64 // hash of the prompt up to the block's end (prefixHash)
	end    uint32 // number of tokens up to there
	size   uint32
}

// mark returns the hash under which picks find the block, 0 if they do not look for it.
func (c cachedBlock) mark() uint64 {
	if marks(int(c.end), int(c.size)) {
		return c.prefix
	}
	return 0
}

// Count returns the number of recorded blocks, -1 if the record is not complete.
func (c *Cache) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blocks == nil {
		return -1
	}
	return len(c.blocks)
}

// Started records that the engine's prefix cache is empty and that every change from now on will be reported. Picks judge
// such an engine by its recorded blocks, and others by the prompts that were sent to them.
func (c *Cache) Started() { c.forget(true) }

// Lost records that the content of the engine's prefix cache is not known any more.
func (c *Cache) Lost() { c.forget(false) }

// forget drops the recorded blocks. known says that the engine's prefix cache is empty now, so that the empty record is
// complete.
func (c *Cache) forget(known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known = known && !c.gone()
	c.index.forget(c, c.blocks, known)
	if c.blocks = nil; known {
		c.blocks = map[uint64]cachedBlock{}
	}
}

// Stored records blocks that the engine has added to its prefix cache. Blocks whose parent is not recorded are
// ignored.
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

// Removed records that the engine has evicted blocks.
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
