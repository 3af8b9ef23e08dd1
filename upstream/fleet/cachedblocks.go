package fleet

import (
	"sync"

	"carryover/upstream"
)

// Blocks are blocks that an engine has filed in its prefix cache, one behind the other.
type Blocks struct {
	Parent  uint64   // the engine's hash of the block before them
	Root    bool     // there is none
	Hashes  []uint64 // the engine's, of each
	Tokens  []uint32 // of all of them, Size for each
	Size    int
	Adapter string   // the LoRA adapter that computed them, "" for none
	Extra   []string // what else a block's hash depends on, "" for nothing; nil where that holds for all
}

// maxCachedBlocks bounds the blocks that are known of one engine. An engine with more is one of which it is not known what it holds. So
// many take some 45 MB, and one with a cache of a million tokens in blocks of 16 takes 3.
const maxCachedBlocks = 1 << 20

// cachedBlocks is what an engine of prefill has in its prefix cache, as it publishes it: by the hash that it has given each block, which
// prompt ends there. Hashes of engines have nothing in common: each seeds them at its start (PYTHONHASHSEED).
type cachedBlocks struct {
	mu     sync.Mutex // guards the rest; taken after the lock of the Fleet and before that of its prefixes
	known  bool       // all of it is known
	blocks map[uint64]cachedBlock
}

// cachedBlock is where a block ends.
type cachedBlock struct {
	prefix uint64 // of the prompt up to there (prefixHash)
	end    uint32 // token
	size   uint32
}

// mark returns the prefix for which picks look, 0 for that of a block that they don't look for.
func (b cachedBlock) mark() uint64 {
	if marks(int(b.end), int(b.size)) {
		return b.prefix
	}
	return 0
}

// count returns how many blocks are known, -1 if not all are.
func (h *cachedBlocks) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.known {
		return -1
	}
	return len(h.blocks)
}

// EventsStarted says that the engine holds nothing, and that all that it files and evicts from here on will be told. An engine of
// which that is so is picked by what it holds, others by what they were sent.
func (e *Engine) EventsStarted() { e.forgetBlocks(true) }

// EventsLost says that it is not known what the engine holds.
func (e *Engine) EventsLost() { e.forgetBlocks(false) }

// forgetBlocks forgets what is known of the engine's prefix cache, which is empty if it is known to be.
func (e *Engine) forgetBlocks(known bool) {
	if e.Role != upstream.RolePrefill {
		return
	}
	e.cached.mu.Lock()
	defer e.cached.mu.Unlock()
	known = known && !e.gone.Load()
	e.fleet.prefixes.forget(e, e.cached.blocks, known)
	e.cached.known, e.cached.blocks = known, nil
}

// BlocksStored says that the engine has filed blocks. Those that follow none that is known are not looked for.
func (e *Engine) BlocksStored(b Blocks) {
	h, p := &e.cached, &e.fleet.prefixes
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.known || b.Size <= 0 {
		return
	}
	at := cachedBlock{prefix: p.root(b.Adapter)}
	if !b.Root {
		parent, found := h.blocks[b.Parent]
		if !found {
			return
		}
		at = parent
	}
	if h.blocks == nil {
		h.blocks = map[uint64]cachedBlock{}
	}
	var added, removed []uint64
	for i, hash := range b.Hashes {
		if b.Extra != nil && b.Extra[i] != "" {
			at.prefix = mixText(at.prefix, b.Extra[i])
		}
		at.prefix = prefixHash(at.prefix, b.Tokens[i*b.Size:(i+1)*b.Size])
		at.end, at.size = at.end+uint32(b.Size), uint32(b.Size)
		if mark := h.blocks[hash].mark(); mark != 0 {
			removed = append(removed, mark)
		}
		h.blocks[hash] = at
		if mark := at.mark(); mark != 0 {
			added = append(added, mark)
		}
		if len(h.blocks) > maxCachedBlocks {
			p.holds(e, nil, removed)
			p.forget(e, h.blocks, false)
			h.known, h.blocks = false, nil
			return
		}
	}
	p.holds(e, added, removed)
}

// BlocksRemoved says that the engine has evicted blocks.
func (e *Engine) BlocksRemoved(hashes []uint64) {
	h := &e.cached
	h.mu.Lock()
	defer h.mu.Unlock()
	var removed []uint64
	for _, hash := range hashes {
		if mark := h.blocks[hash].mark(); mark != 0 {
			removed = append(removed, mark)
		}
		delete(h.blocks, hash)
	}
	e.fleet.prefixes.holds(e, nil, removed)
}
