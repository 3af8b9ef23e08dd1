package convcache

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// chainVersion keys chains. All versions differ, so that the chain key is never equal to something that leaves the process.
const chainVersion byte = 3

// ChainKey keys the hashes of chains. Without it nobody can search for colliding ids, or learn of prompts from a store. It prints as "[chain key]".
type ChainKey struct {
	k0, k1 uint64
}

// ChainKey returns the key of all chains under this secret: the first 16 bytes of an HMAC-SHA256.
func (s Secret) ChainKey() ChainKey {
	sum := s.Derive(chainVersion, []byte("chain"))
	return ChainKey{k0: binary.LittleEndian.Uint64(sum), k1: binary.LittleEndian.Uint64(sum[8:])}
}

// String hides the key from %v and %s.
func (ChainKey) String() string { return "[chain key]" }

// GoString hides the key from %#v.
func (ChainKey) GoString() string { return "[chain key]" }

// NewTagKey makes a key for Tag of the first 16 bytes of a secret text.
func NewTagKey(text []byte) ChainKey {
	return ChainKey{k0: binary.BigEndian.Uint64(text), k1: binary.BigEndian.Uint64(text[8:])}
}

// Tag returns a keyed hash of a chain's hash, which hides which chains are equal. Chain.Whole and a block with equal hashes have different tags.
func (k ChainKey) Tag(hash uint64, whole bool) uint64 { return sipHash(k, hash, nil, whole) }

// sipHash returns SipHash-2-4 (Aumasson and Bernstein, 2012) of previous as 8 little-endian bytes, each id as 4, and the byte 1 if last is
// true. Without the key, only trying finds two inputs with one hash.
//
// It reads ids in place, because it runs for every block of every prompt: 128k ids in blocks of 16 take 0.5 ms (BenchmarkChain).
func sipHash(key ChainKey, previous uint64, ids []uint32, last bool) uint64 {
	v0 := key.k0 ^ 0x736f6d6570736575
	v1 := key.k1 ^ 0x646f72616e646f6d
	v2 := key.k0 ^ 0x6c7967656e657261
	v3 := key.k1 ^ 0x7465646279746573

	v3 ^= previous
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0 ^= previous

	length := uint64(8 + 4*len(ids))
	for len(ids) >= 2 {
		word := uint64(ids[0]) | uint64(ids[1])<<32
		v3 ^= word
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
		v0 ^= word
		ids = ids[2:]
	}

	// The last word holds the remaining bytes, and the length in its highest byte.
	var word uint64
	used := 0
	if len(ids) == 1 {
		word = uint64(ids[0])
		used = 32
	}
	if last {
		word |= 1 << used
		length++
	}
	word |= length << 56
	v3 ^= word
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0 ^= word

	v2 ^= 0xff
	for range 4 {
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	}
	return v0 ^ v1 ^ v2 ^ v3
}

// sipRound is small enough to be inlined.
func sipRound(v0, v1, v2, v3 uint64) (uint64, uint64, uint64, uint64) {
	v0 += v1
	v2 += v3
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v1
	v0 += v3
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 = bits.RotateLeft64(v2, 32)
	return v0, v1, v2, v3
}

// stride is the number of ids per hash if the block size is unknown. It lets the branches of one look-up share work.
const stride = 64

// Chain identifies the tokens in a ticket's blocks by hashes. Each hash covers the one before it, so equal hashes mean equal ids from the
// first on, except by chance (1 in 2^64). A Chain never changes: tickets, branches and stores share Blocks. The zero Chain proves nothing.
type Chain struct {
	// BlockSize is decode's block size in tokens. If it is unknown, 0, only whole chains can be compared.
	BlockSize int
	// Blocks has one hash per full block: of the hash before it, or 0, and the block's ids.
	Blocks []uint64
	// Whole covers exactly Tokens ids: the last of Blocks, or 0, the remaining ids, if any, and one byte more, so that it equals no hash of
	// a full block. Without a block size, blocks have 64 ids.
	Whole uint64
	// Tokens is the number of ids, remote_num_tokens. 0 means no chain.
	Tokens int
}

func blockStep(blockSize int) int {
	if blockSize == 0 {
		return stride
	}
	return blockSize
}

// Growing is the chain of a turn while its output is sampled. It keeps hashes of complete blocks, and less than two blocks of ids: 8 kB for
// a prompt of 16,000 tokens, whose ids as JSON take 100. It is not safe for concurrent use.
type Growing struct {
	key    ChainKey
	size   int // decode's block size, 0 if unknown
	step   int // ids per hash
	blocks []uint64
	last   uint64 // hash of everything before tail
	hashed int    // ids before tail
	// tail holds at most a block. A full block is hashed only with the next id, because remote_num_tokens may leave the last id out.
	tail []uint32
}

const outputBlocks = 16

// Grow returns the chain of these ids, ready for output. It reuses the hashes of offers. A blockSize of 0 means unknown.
func (p *IDs) Grow(blockSize int) *Growing {
	step := blockStep(max(blockSize, 0))
	g := &Growing{key: p.key, size: blockSize, step: step, tail: make([]uint32, 0, step)}
	if blockSize > 0 {
		g.blocks = make([]uint64, 0, len(p.ids)/step+outputBlocks)
	}
	for i := range p.hashed {
		if known := p.hashed[i]; known.step == step && len(p.ids) > 0 {
			// The chain may leave the last id out.
			hashes := known.hashes[:min(len(known.hashes), (len(p.ids)-1)/step)]
			g.hashed, g.last = len(hashes)*step, lastOf(hashes)
			if blockSize > 0 {
				g.blocks = append(g.blocks, hashes...)
			}
		}
	}
	g.Add(p.ids[g.hashed:])
	return g
}

// Add appends ids. It keeps none of the slice.
func (g *Growing) Add(ids []uint32) {
	for len(ids) > 0 {
		if len(g.tail) == g.step {
			g.seal(g.tail)
			g.tail = g.tail[:0]
		}
		if len(g.tail) == 0 && len(ids) > g.step {
			g.seal(ids[:g.step])
			ids = ids[g.step:]
			continue
		}
		n := min(g.step-len(g.tail), len(ids))
		g.tail = append(g.tail, ids[:n]...)
		ids = ids[n:]
	}
}

func (g *Growing) seal(block []uint32) {
	g.last = sipHash(g.key, g.last, block, false)
	if g.size > 0 {
		g.blocks = append(g.blocks, g.last)
	}
	g.hashed += g.step
}

// Len returns the number of ids so far.
func (g *Growing) Len() int { return g.hashed + len(g.tail) }

// Bytes returns the memory of the blocks and the tail.
func (g *Growing) Bytes() int { return 8*cap(g.blocks) + 4*cap(g.tail) }

// Chain ends the growth and returns the chain of decode's blocks. tokens, decode's remote_num_tokens, must be the number of ids or one less:
// the last sampled token has KV only if another step was under way (vLLM's NixlConnector reports num_computed_tokens). Any other number
// means that decode counted tokens that the caller has not seen.
func (g *Growing) Chain(tokens int) (Chain, bool) {
	all := g.Len()
	if tokens <= 0 || tokens != all && tokens != all-1 || g.size < 0 {
		return Chain{}, false
	}
	g.tail = g.tail[:len(g.tail)-(all-tokens)]
	if len(g.tail) == g.step {
		g.seal(g.tail)
		g.tail = g.tail[:0]
	}
	return Chain{BlockSize: g.size, Blocks: g.blocks, Whole: sipHash(g.key, g.last, g.tail, true), Tokens: tokens}, true
}

// containedIn reports whether a later chain has all full blocks of c, perhaps without its last partial block. Hashes under different keys are never
// equal.
func (c Chain) containedIn(later Chain) bool {
	switch {
	case c.BlockSize != later.BlockSize:
		return false
	case c.Tokens == later.Tokens && c.Whole == later.Whole:
		return c.Tokens > 0 // without a look at the blocks
	}
	// Equal chains have returned above, so chains of one length differ after the last block.
	blocks := len(c.Blocks)
	return blocks > 0 && c.Tokens < later.Tokens && blocks <= len(later.Blocks) && slices.Equal(c.Blocks, later.Blocks[:blocks])
}
