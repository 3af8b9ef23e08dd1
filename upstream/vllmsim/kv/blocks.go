package kv

// Pool is the KV memory of one engine: numbered blocks, a queue of free ones, and the prefix cache over them. A freed block keeps its content
// and its place in the cache until its next owner overwrites it. So a late read can look right, but still cannot be trusted
// (vllm/v1/core/block_pool.py, 0.32). The engine's mutex guards it.
type Pool struct {
	Capacity int // the number of blocks, free or not

	size   int              // tokens in a block
	blocks []block          // those that have had an owner: in most tests a few of thousands
	kv     []uint64         // KV content, size slots for each of them
	Cached map[uint64]int32 // block hash to the block in the cache
	Free   int
	Plain  bool // there is no prefix cache
	// Evicted, if not nil, is called for each block that leaves the cache for a new owner.
	Evicted func(hash uint64)
}

// Block 0 is vLLM's null block: it is never handed out, and here it is also the head of the free queue.
type block struct {
	refs       int
	hash       uint64 // 0: not in the prefix cache
	prev, next int32  // neighbours in the free queue while refs is 0
}

// NewPool returns the memory of an engine. All blocks are free.
func NewPool(blocks, size int) *Pool {
	return &Pool{size: size, Capacity: blocks, blocks: make([]block, 1), kv: make([]uint64, size), Cached: make(map[uint64]int32), Free: blocks}
}

func (p *Pool) enqueue(id int32) {
	tail := p.blocks[0].prev
	p.blocks[id].prev, p.blocks[id].next = tail, 0
	p.blocks[tail].next = id
	p.blocks[0].prev = id
	p.Free++
}

func (p *Pool) dequeue(id int32) {
	b := &p.blocks[id]
	p.blocks[b.prev].next = b.next
	p.blocks[b.next].prev = b.prev
	p.Free--
}

// Lookup returns the cached blocks of the longest prefix of hashes, and takes a reference to each.
func (p *Pool) Lookup(hashes []uint64) []int32 {
	var hits []int32
	for _, hash := range hashes {
		id, ok := p.Cached[hash]
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

// Alloc takes the n blocks that have been free longest. Those that never had an owner come first, by their numbers. If fewer than n are free,
// it takes none.
func (p *Pool) Alloc(n int) ([]int32, bool) {
	if n > p.Free {
		return nil, false
	}
	ids := make([]int32, n)
	for i := range ids {
		id := int32(len(p.blocks))
		if int(id) <= p.Capacity {
			p.blocks = append(p.blocks, block{})
			p.kv = append(p.kv, make([]uint64, p.size)...)
			p.Free--
		} else {
			id = p.blocks[0].next
			p.dequeue(id)
		}
		b := &p.blocks[id]
		b.refs = 1
		if b.hash != 0 && p.Cached[b.hash] == id {
			delete(p.Cached, b.hash)
			if p.Evicted != nil {
				p.Evicted(b.hash)
			}
		}
		b.hash = 0
		ids[i] = id
	}
	return ids, true
}

// Release drops one reference to each block. The last blocks become free first, so that a shared prefix stays longest.
func (p *Pool) Release(ids []int32) {
	for i := len(ids) - 1; i >= 0; i-- {
		b := &p.blocks[ids[i]]
		if b.refs--; b.refs == 0 {
			p.enqueue(ids[i])
		}
	}
}

// File enters full blocks into the prefix cache under the hashes of the tokens that they should hold. It does not compare the content, so it
// files wrong KV like right KV. It returns the indexes of the blocks that are new in the cache.
func (p *Pool) File(ids []int32, hashes []uint64) (fresh []int) {
	if p.Plain {
		return nil
	}
	for i, id := range ids[:len(hashes)] {
		if p.blocks[id].hash != 0 {
			continue
		}
		p.blocks[id].hash = hashes[i]
		if _, ok := p.Cached[hashes[i]]; !ok {
			p.Cached[hashes[i]] = id
			fresh = append(fresh, i)
		}
	}
	return fresh
}

// Slots returns the memory of a block; a copy, if the block never had an owner.
func (p *Pool) Slots(id int32) []uint64 {
	if int(id) >= len(p.blocks) {
		return make([]uint64, p.size)
	}
	at := int(id) * p.size
	return p.kv[at : at+p.size]
}

// Slot returns the memory of token i of a request with these blocks.
func (p *Pool) Slot(blocks []int32, i int) *uint64 {
	return &p.Slots(blocks[i/p.size])[i%p.size]
}

// Clear empties the prefix cache, and overwrites the blocks that no request uses.
func (p *Pool) Clear() {
	clear(p.Cached)
	for id := range p.blocks {
		b := &p.blocks[id]
		b.hash = 0
		if b.refs > 0 {
			continue
		}
		slots := p.Slots(int32(id))
		for n := range slots {
			slots[n] = Mix(slots[n] ^ mixGamma)
		}
	}
}
