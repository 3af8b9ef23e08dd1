package prefixindex

import "math/rand/v2"

// markEvery is the distance of marks in tokens, half of what a piece of text has. A mark is the end of the first block
// that reaches or passes a multiple of markEvery; picks know which engines hold a prompt up to its marks.
const markEvery = TokensPerPiece / 2

// marks reports whether a block of size tokens that ends at token end is a mark.
func marks(end, size int) bool { return size > 0 && end/markEvery > (end-size)/markEvery }

// mix is splitmix64 (Steele et al., "Fast splittable pseudorandom number generators", OOPSLA 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// prefixHash extends the hash before by tokens. It does not depend on where blocks end, so engines with different
// block sizes can be compared. 0 means no hash; a real hash is 0 once in 2^64.
func prefixHash(before uint64, tokens []uint32) uint64 {
	for _, token := range tokens {
		before = mix(before ^ uint64(token) + 1)
	}
	return before
}

// mixText extends the hash before by a text.
func mixText(before uint64, text string) uint64 {
	for i := range len(text) {
		before = mix(before ^ uint64(text[i]) + 1)
	}
	return mix(before ^ uint64(len(text)))
}

// newSeed returns the seed of this process, without which a client can't construct prompts whose hashes collide with
// those of others.
func newSeed() uint64 { return rand.Uint64() | 1 }
