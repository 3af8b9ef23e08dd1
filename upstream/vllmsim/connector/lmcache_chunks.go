package connector

import (
	"sync"

	"carryover/upstream/vllmsim/kv"
)

// chunkKey identifies the KV of a part of a prompt by all tokens up to its end, as LMCache does, and by the request's tags. cache_salt is not
// part of it (measured on 0.5.6). The weights are: otherwise the simulator itself would confuse an adapter's KV with another model's.
type chunkKey struct {
	hash uint64
	end  int // tokens up to the end of the chunk
}

// chunkKeys cuts tokens into chunks of size tokens. With partial, the last chunk may be shorter.
func chunkKeys(seed uint64, tokens []int32, size int, partial bool) []chunkKey {
	var keys []chunkKey
	hash := kv.Mix(seed ^ kv.MixA)
	for i, token := range tokens {
		hash = kv.Mix(hash ^ uint64(uint32(token)+1))
		if (i+1)%size == 0 || partial && i+1 == len(tokens) {
			keys = append(keys, chunkKey{hash, i + 1})
		}
	}
	return keys
}

// kvChunk is KV that a sender pushes. A lookup finds it as soon as it is allocated, before its bytes are there (pd_backend.py: "the request
// will not be seen until the proxy receives the ack").
type kvChunk struct {
	content []uint64 // nil until all shares have landed
	landed  uint64   // a bit for each rank of the sender whose share has landed
	offers  int      // hand-overs whose offer was not taken yet
}

type chunks struct {
	mu   sync.Mutex // guards held
	held map[uint64]*kvChunk
}

func (c *chunks) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.held)
}

// allocate makes space for the shares that a rank is going to push; a receiver always has enough. The first rank of a hand-over adds an
// offer. A chunk that is still held is offered once more (already_sent_indexes).
func (c *chunks) allocate(keys []uint64, rank int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		if c.held[key] == nil {
			c.held[key] = &kvChunk{}
		}
		if rank == 0 {
			c.held[key].offers++
		}
	}
}

func (c *chunks) land(keys []uint64, content [][]uint64, rank, ranks int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, key := range keys {
		held := c.held[key]
		if held == nil {
			continue // taken before it was complete
		}
		if held.landed |= 1 << rank; held.landed == 1<<ranks-1 {
			held.content = content[i]
		}
	}
}

// forget withdraws offers, as CancelNotif does.
func (c *chunks) forget(keys []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		c.drop(key)
	}
}

// drop ends one offer of a chunk. The caller holds c.mu.
func (c *chunks) drop(key uint64) {
	if held := c.held[key]; held != nil {
		if held.offers--; held.offers <= 0 {
			delete(c.held, key)
		}
	}
}

// take returns the content of the longest prefix of keys that is held. landed means that all of it had arrived; for other chunks the content
// is what the memory held before. Chunks that end beyond the first local tokens are read and then removed, unless they were offered more than
// once (remove_after_retrieve). All other chunks stay: nothing else ends them (measured).
func (c *chunks) take(keys []chunkKey, local int) (content []uint64, landed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	landed = true
	for _, key := range keys {
		held := c.held[key.hash]
		if held == nil {
			break
		}
		switch {
		case held.content != nil:
			content = append(content, held.content...)
		default:
			landed = landed && key.end <= local
			for at := len(content); at < key.end; at++ {
				content = append(content, kv.Mix(key.hash+uint64(at)))
			}
		}
		if key.end > local {
			c.drop(key.hash)
		}
	}
	return content, landed
}
