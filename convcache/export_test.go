package convcache

import "strings"

// SipHash is sipHash under the key that is the given 16 bytes, for comparison with the reference.
func SipHash(k0, k1, previous uint64, ids []uint32, last bool) uint64 {
	return sipHash(ChainKey{k0: k0, k1: k1}, previous, ids, last)
}

// Halves returns the key as two little-endian words.
func (k ChainKey) Halves() (uint64, uint64) { return k.k0, k.k1 }

// Chain is the chain of a prompt and its output that are there at once.
func (k ChainKey) Chain(prompt, output []uint32, tokens, blockSize int) (Chain, bool) {
	g := k.Grow(prompt, blockSize)
	g.Add(output)
	return g.Chain(tokens)
}

// Mutant returns a store that shares everything with r but the text of its scripts, in which it replaces
// one text by another, and whether that changed anything.
func (r *Redis) Mutant(text, by string) (*Redis, bool) {
	replace := func(script string) string { return strings.ReplaceAll(script, text, by) }
	m := &Redis{
		cfg: r.cfg, client: r.client, envelope: r.envelope, breaker: r.breaker, home: r.home,
		scripts: newScripts(replace(sharedLua), replace(takeLua), replace(putLua)),
	}
	return m, strings.Contains(sharedLua+takeLua+putLua, text)
}
