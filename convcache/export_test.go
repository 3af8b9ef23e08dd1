package convcache

// SipHash is sipHash under the key that is the given 16 bytes, for comparison with the reference.
func SipHash(k0, k1, previous uint64, ids []uint32, last bool) uint64 {
	return sipHash(ChainKey{k0: k0, k1: k1}, previous, ids, last)
}

// Halves returns the key as two little-endian words.
func (k ChainKey) Halves() (uint64, uint64) { return k.k0, k.k1 }
