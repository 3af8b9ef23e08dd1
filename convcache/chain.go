package convcache

import (
	"encoding/binary"
	"math/bits"
)

// chainVersion begins the input from which the chain key is derived. It differs from all other versions, so that the
// key is never equal to something that leaves the process.
const chainVersion byte = 3

// ChainKey keys the hashes of a chain, so that no client can search for ids that collide with those
// of another prompt, and so that a reader of the store learns nothing about prompts. It prints as
// "[chain key]".
type ChainKey struct {
	k0, k1 uint64
}

// ChainKey returns the key of all chains under this secret: the first 16 bytes of an HMAC-SHA256.
func (s Secret) ChainKey() ChainKey {
	sum := s.Derive(chainVersion, []byte("chain"))
	return ChainKey{k0: binary.LittleEndian.Uint64(sum), k1: binary.LittleEndian.Uint64(sum[8:])}
}

// String hides the key from logs and from the %v and %s verbs.
func (ChainKey) String() string { return "[chain key]" }

// GoString hides the key from the %#v verb.
func (ChainKey) GoString() string { return "[chain key]" }

// NewTagKey returns a key for Tag, made of the first 16 bytes of a secret text.
func NewTagKey(text []byte) ChainKey {
	return ChainKey{k0: binary.BigEndian.Uint64(text), k1: binary.BigEndian.Uint64(text[8:])}
}

// Tag returns a keyed hash of a hash of a chain, for places where the hash itself would show which chains are equal.
// Chain.Whole and a block with equal hashes have different tags.
func (k ChainKey) Tag(hash uint64, whole bool) uint64 { return sipHash(k, hash, nil, whole) }

// sipHash returns SipHash-2-4 (Aumasson and Bernstein, 2012) of previous as 8 little-endian bytes,
// followed by each id as 4, followed by the byte 1 if last is true. It is a pseudo-random function of
// that string: without the key no search finds two strings of equal hash better than by trying.
//
// It reads the ids where they are, since it is called for every block of every prompt: 128k ids in
// blocks of 16 take 0.5 ms (BenchmarkChain).
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

	// The last word has what is left, and in its highest byte the length.
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

// stride is how many ids are hashed at a time where the block size is not known. It only serves to share work between
// the branches of one look-up.
const stride = 64

// Chain identifies, by hashes, the tokens that a ticket's blocks hold, in order. Equal hashes mean equal ids at equal
// positions from the first on, because every hash covers the one before it; by chance that fails once in 2^64.
//
// A Chain is not changed after it is made: tickets, branches and stores share its Blocks. The zero Chain proves
// nothing.
type Chain struct {
	// BlockSize is decode's block size in tokens. 0 means unknown; then only whole chains can be compared.
	BlockSize int
	// Blocks has one hash per full block: over the hash of the block before it, or 0, and the block's ids.
	Blocks []uint64
	// Whole covers exactly Tokens ids: the last of Blocks, or 0, the ids after it, of which there may
	// be none, and one byte more, so that it equals no hash of a full block. Without a block size the
	// ids before the rest are taken in blocks of 64.
	Whole uint64
	// Tokens is how many ids the chain covers, which is remote_num_tokens. 0 means no chain.
	Tokens int
}

// blockStep is how many ids one hash covers.
func blockStep(blockSize int) int {
	if blockSize == 0 {
		return stride
	}
	return blockSize
}

// Growing is the chain of a turn while its output is being sampled: hashes of the complete blocks, and less than two
// blocks of ids. For a prompt of 16,000 tokens it takes 8 kB, where the ids as JSON take 100. It belongs to one turn
// and is not safe for concurrent use.
type Growing struct {
	key    ChainKey
	size   int // of a block as decode has it, 0 if unknown
	step   int // ids per hash
	blocks []uint64
	last   uint64 // hash of all that is not in tail
	hashed int    // ids that last covers
	// tail holds the ids after that, at most a block. A full block is hashed only when a further id comes, because
	// remote_num_tokens may leave the last id out.
	tail []uint32
}

// outputBlocks is for how many blocks of output memory is allocated at first.
const outputBlocks = 16

// Grow returns the chain of a prompt, to which output is added as it comes. A blockSize of 0 means unknown.
func (k ChainKey) Grow(prompt []uint32, blockSize int) *Growing { return k.IDs(prompt).Grow(blockSize) }

// Grow returns the chain of these ids, to which output is added as it comes. It reuses the hashes that an offer has
// computed. A blockSize of 0 means unknown.
func (p *IDs) Grow(blockSize int) *Growing {
	step := blockStep(max(blockSize, 0))
	g := &Growing{key: p.key, size: blockSize, step: step, tail: make([]uint32, 0, step)}
	if blockSize > 0 {
		g.blocks = make([]uint64, 0, len(p.ids)/step+outputBlocks)
	}
	for i := range p.hashed {
		if known := p.hashed[i]; known.step == step && len(p.ids) > 0 {
			// The last id may turn out not to be part of the chain.
			g.take(known.hashes[:min(len(known.hashes), (len(p.ids)-1)/step)])
		}
	}
	g.Add(p.ids[g.hashed:])
	return g
}

// take takes hashes over that are the beginning of the chain.
func (g *Growing) take(hashes []uint64) {
	g.hashed, g.last = len(hashes)*g.step, lastOf(hashes)
	if g.size > 0 {
		g.blocks = append(g.blocks, hashes...)
	}
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

// seal hashes a block.
func (g *Growing) seal(block []uint32) {
	g.last = sipHash(g.key, g.last, block, false)
	if g.size > 0 {
		g.blocks = append(g.blocks, g.last)
	}
	g.hashed += g.step
}

// Len returns the number of ids so far.
func (g *Growing) Len() int { return g.hashed + len(g.tail) }

// Bytes returns the memory that it takes.
func (g *Growing) Bytes() int { return 8*cap(g.blocks) + 4*cap(g.tail) }

// Chain ends the growth and returns the chain of what decode holds. It reports false unless tokens, decode's
// remote_num_tokens, is the number of all ids or one less: the last sampled token has KV only if a further step was
// under way when the request ended (vLLM's NixlConnector reports num_computed_tokens). Any other number means that
// decode counted something that the caller has not seen.
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

// Relation compares a chain with one that was put later.
type Relation int

// The relations.
const (
	// Unrelated: no full block is known to be equal, as with a title generator's prompt under the conversation's id;
	// or the block sizes differ, so that nothing can be compared.
	Unrelated Relation = iota
	// Contained: the later chain has all full blocks of the older one. Hashes do not show whether it also has a last
	// partial block, so dropping the older one may lose less than one block.
	Contained
	// Diverges: both begin with the same block, and the older one has tokens that the later one lacks: the turn was
	// regenerated, or an earlier message edited.
	Diverges
)

// Relation compares c with a chain that was put later, by their hashes. No key is needed: hashes under different keys
// are never equal.
func (c Chain) Relation(later Chain) Relation {
	if c.equal(later) {
		return Contained
	}
	if c.BlockSize != later.BlockSize {
		return Unrelated
	}
	shared := 0
	for shared < min(len(c.Blocks), len(later.Blocks)) && c.Blocks[shared] == later.Blocks[shared] {
		shared++
	}
	switch {
	case shared == 0:
		return Unrelated
	case shared < len(c.Blocks), c.Tokens >= later.Tokens:
		// At equal length equal chains have been told apart above by what follows the last block.
		return Diverges
	}
	return Contained
}

// equal reports whether two chains cover the same tokens, without comparing their blocks.
func (c Chain) equal(other Chain) bool {
	return c.Tokens > 0 && c.Tokens == other.Tokens && c.BlockSize == other.BlockSize && c.Whole == other.Whole
}
