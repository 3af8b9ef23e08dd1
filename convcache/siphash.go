package convcache

import "math/bits"

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
