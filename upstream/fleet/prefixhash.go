package fleet

import "math/rand/v2"

// markEvery is how far apart the places of a prompt are, in tokens, for which picks know the engines that hold it up to there: half of what a
// piece of its text has. A place is the end of the first block that has so many tokens before its end or more.
const markEvery = tokensPerPiece / 2

// marks reports whether a block of so many tokens that ends at a token is at such a place.
func marks(end, size int) bool { return size > 0 && end/markEvery > (end-size)/markEvery }

// mix is splitmix64 (Steele et al., "Fast splittable pseudorandom number generators", OOPSLA 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// prefixHash hashes tokens behind what is hashed already. It does not depend on where blocks end, so that engines with blocks of
// other sizes are compared too. 0 stands for nothing, which a hash is once in 2^64.
func prefixHash(before uint64, tokens []uint32) uint64 {
	for _, token := range tokens {
		before = mix(before ^ uint64(token) + 1)
	}
	return before
}

// mixText hashes a text.
func mixText(before uint64, text string) uint64 {
	for i := range len(text) {
		before = mix(before ^ uint64(text[i]) + 1)
	}
	return mix(before ^ uint64(len(text)))
}

// newSeed returns the seed of a process: with that no client can make its prompts look like those of others.
func newSeed() uint64 { return rand.Uint64() | 1 }
