package vllmsim

// pool is the KV memory of one engine: numbered blocks, a queue of free ones, and the prefix cache over them.
// A freed block keeps its content and its place in the cache until its next owner overwrites it. That is why a late read can
// look right and still cannot be trusted (vllm/v1/core/block_pool.py, 0.32).
// The engine's mutex guards it.
type pool struct {
	size   int // tokens in a block
	blocks []block
	kv     []uint64         // KV content, size slots for each block
	cached map[uint64]int32 // block hash to the block that the cache has for it
	free   int
	plain  bool // there is no prefix cache
	// evicted is called for each block that leaves the cache for a new owner; it may be nil.
	evicted func(hash uint64)
}

// block 0 is vLLM's null block: it is never handed out, and here it is also the head of the free queue.
type block struct {
	refs       int
	hash       uint64 // 0: not in the prefix cache
	prev, next int32  // neighbours in the free queue while refs is 0
}

func newPool(blocks, size int) *pool {
	p := &pool{
		size:   size,
		blocks: make([]block, blocks+1),
		kv:     make([]uint64, (blocks+1)*size),
		cached: make(map[uint64]int32),
	}
	for id := 1; id <= blocks; id++ {
		p.enqueue(int32(id))
	}
	return p
}

func (p *pool) capacity() int { return len(p.blocks) - 1 }

func (p *pool) enqueue(id int32) {
	tail := p.blocks[0].prev
	p.blocks[id].prev, p.blocks[id].next = tail, 0
	p.blocks[tail].next = id
	p.blocks[0].prev = id
	p.free++
}

func (p *pool) dequeue(id int32) {
	b := &p.blocks[id]
	p.blocks[b.prev].next = b.next
	p.blocks[b.next].prev = b.prev
	p.free--
}

// lookup returns the cached blocks of the longest prefix of hashes, and takes a reference to each.
func (p *pool) lookup(hashes []uint64) []int32 {
	var hits []int32
	for _, hash := range hashes {
		id, ok := p.cached[hash]
		if !ok {
			break
		}
		if p.blocks[id].refs == 0 {
			p.dequeue(id)
		}
		p.blocks[id].refs++
		hits = append(hits, id)
	}
	return hits
}

// alloc takes the n blocks that have been free longest, or none if fewer than n are free.
func (p *pool) alloc(n int) ([]int32, bool) {
	if n > p.free {
		return nil, false
	}
	ids := make([]int32, n)
	for i := range ids {
		id := p.blocks[0].next
		p.dequeue(id)
		b := &p.blocks[id]
		b.refs = 1
		if b.hash != 0 && p.cached[b.hash] == id {
			delete(p.cached, b.hash)
			if p.evicted != nil {
				p.evicted(b.hash)
			}
		}
		b.hash = 0
		ids[i] = id
	}
	return ids, true
}

// release drops one reference to each block. The last blocks become free first, so that a shared prefix stays longest.
func (p *pool) release(ids []int32) {
	for i := len(ids) - 1; i >= 0; i-- {
		b := &p.blocks[ids[i]]
		if b.refs--; b.refs == 0 {
			p.enqueue(ids[i])
		}
	}
}

// file enters full blocks into the prefix cache under the hashes of the tokens that they should hold. Nothing compares the content:
// wrong KV is filed like right KV. It returns the indexes of the blocks that are new in the cache.
func (p *pool) file(ids []int32, hashes []uint64) (fresh []int) {
	if p.plain {
		return nil
	}
	for i, id := range ids[:len(hashes)] {
		if p.blocks[id].hash != 0 {
			continue
		}
		p.blocks[id].hash = hashes[i]
		if _, ok := p.cached[hashes[i]]; !ok {
			p.cached[hashes[i]] = id
			fresh = append(fresh, i)
		}
	}
	return fresh
}

// slots returns the memory of a block.
func (p *pool) slots(id int32) []uint64 {
	at := int(id) * p.size
	return p.kv[at : at+p.size]
}

// slot returns the memory of token i of a request that owns blocks.
func (p *pool) slot(blocks []int32, i int) *uint64 {
	return &p.kv[int(blocks[i/p.size])*p.size+i%p.size]
}
