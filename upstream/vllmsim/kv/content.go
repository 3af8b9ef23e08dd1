// Package kv models the KV memory of an engine: a number for each token slot, blocks of slots, and the prefix cache over them.
package kv

// KV content is one number per token slot. As in a transformer, it depends on the token (or on the part of an image in its place) and on all
// KV before it that is actually present, right or wrong. The slots in order give the state from which the model samples, so one wrong slot
// changes every later slot and the answer.

// splitmix64 constants, Steele et al., "Fast splittable pseudorandom number generators", OOPSLA 2014.
const (
	mixGamma = 0x9e3779b97f4a7c15
	MixA     = 0xbf58476d1ce4e5b9
	MixB     = 0x94d049bb133111eb
)

// Mix is splitmix64.
func Mix(x uint64) uint64 {
	x += mixGamma
	x = (x ^ x>>30) * MixA
	x = (x ^ x>>27) * MixB
	return x ^ x>>31
}

// InitialState returns the state before the first token; the seed stands for the weights.
func InitialState(seed uint64) uint64 { return Mix(seed ^ MixB) }

// SlotContent returns the KV that the model computes for token in this state. media is 0 for text.
func SlotContent(state uint64, token int32, media uint64) uint64 {
	return Mix(state ^ uint64(uint32(token)+1)*MixA ^ media)
}

// ReadSlot returns the state after the model has also attended to a slot.
func ReadSlot(state, content uint64) uint64 { return Mix(state + content*mixGamma) }

// ExpectedContent returns the KV of tokens without any mistake. Every read is compared with it.
func ExpectedContent(seed uint64, tokens []int32, media []uint64) []uint64 {
	content := make([]uint64, len(tokens))
	state := InitialState(seed)
	for i, token := range tokens {
		content[i] = SlotContent(state, token, MediaAt(media, i))
		state = ReadSlot(state, content[i])
	}
	return content
}

// BlockHashes returns the prefix-cache keys of the full blocks of tokens: a hash chain over the ids and the hashes of media that begins with
// cache_salt (generate_block_hash_extra_keys in vllm/v1/core/kv_cache_utils.py mixes in mm_hash). The keys say what a block should hold; its
// content says what it holds.
func BlockHashes(salt string, tokens []int32, media []uint64, blockSize int) []uint64 {
	hashes := make([]uint64, 0, len(tokens)/blockSize)
	hash := uint64(MixB)
	for _, b := range []byte(salt) {
		hash = Mix(hash ^ uint64(b))
	}
	for i, token := range tokens {
		hash = Mix(hash ^ uint64(uint32(token)+1) ^ MediaAt(media, i))
		if (i+1)%blockSize == 0 {
			hashes = append(hashes, hash)
		}
	}
	return hashes
}

// MediaAt returns the hash of the media at position i, 0 for text.
func MediaAt(media []uint64, i int) uint64 {
	if i < len(media) {
		return media[i]
	}
	return 0
}
