package convcache

import "encoding/binary"

// chainVersion begins the input from which the chain key is derived. It differs from all other versions, so that the
// key is never equal to something that leaves the process.
const chainVersion byte = 3

// stride is how many ids are hashed at a time where the block size is not known. It only serves to share work between
// the branches of one look-up.
const stride = 64

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
