package fleet

import (
	"testing"

	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet/prefixindex"
)

// told is a large fleet all of whose prefill engines publish KV events. All hold the beginning of the prompt, each tenth holds half
// of it, and one all of it.
func told(tb testing.TB) (f *Fleet, hint Hint) {
	tb.Helper()
	f, hint = large(tb)
	ids := make([]uint32, len(hint.Chain)*prefixindex.TokensPerPiece)
	for i := range ids {
		ids[i] = uint32(i) * 31
	}
	prompt := prefixindex.ComputedPrompt{Chain: hint.Chain, Bytes: len(hint.Chain) * body.ChainPiece, IDs: ids, BlockSize: 16, Model: "model"}
	for i, e := range f.Engines(upstream.RolePrefill) {
		e.Cache.Started()
		n := len(ids) / 8
		switch {
		case i == 500:
			n = len(ids)
		case i%10 == 0:
			n = len(ids) / 2
		}
		e.Cache.Stored(blocksOf(ids[:n], 16))
	}
	f.Prefixes.IndexPrompt(prompt)
	return f, hint
}

// hashOf extends a hash.
func hashOf[T byte | uint32](hash uint64, by []T) uint64 {
	for _, one := range by {
		hash = (hash ^ uint64(one) + 1) * 0xbf58476d1ce4e5b9
		hash ^= hash >> 31
	}
	return hash
}

// blocksOf are the blocks of a prompt. Their hashes are the engine's, and mean nothing.
func blocksOf(ids []uint32, size int) prefixindex.Blocks {
	b := prefixindex.Blocks{Root: true, Tokens: ids[:len(ids)/size*size], Size: size}
	hash := uint64(1)
	for at := 0; at+size <= len(ids); at += size {
		hash = hashOf(hash, ids[at:at+size])
		b.Hashes = append(b.Hashes, hash)
	}
	return b
}
