package convcache_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"carryover/convcache"
)

// BenchmarkChain makes the chain of a prompt and its output.
func BenchmarkChain(b *testing.B) {
	k := chainKey(b, "0123456789abcdef")
	for _, tokens := range []int{8 << 10, 128 << 10} {
		ids := randomIDs(rand.New(rand.NewPCG(1, 1)), tokens, 150_000)
		for _, blockSize := range []int{16, 64, 0} {
			b.Run(fmt.Sprintf("%dk/blocks=%d", tokens>>10, blockSize), func(b *testing.B) {
				b.SetBytes(int64(4 * tokens))
				b.ReportAllocs()
				for b.Loop() {
					if _, ok := k.Chain(ids[:tokens-1000], ids[tokens-1000:], tokens, blockSize); !ok {
						b.Fatal("no chain")
					}
				}
			})
		}
	}
}

// BenchmarkOffer holds the four branches of a conversation against one prompt: all of it, all but the
// last block, half of it, and nothing in common.
func BenchmarkOffer(b *testing.B) {
	k := chainKey(b, "0123456789abcdef")
	for _, tokens := range []int{8 << 10, 128 << 10} {
		ids := randomIDs(rand.New(rand.NewPCG(1, 1)), tokens, 150_000)
		var branches []convcache.Branch
		for _, edit := range []int{tokens, tokens - 20, tokens / 2, 0} {
			held := slices.Clone(ids[:tokens-10])
			for i := edit; i < len(held); i++ {
				held[i]++
			}
			c := mustChain(b, k, held, 0, 16)
			branches = append(branches, convcache.Branch{Chain: c, Tokens: c.Tokens, Groups: 1})
		}
		b.Run(fmt.Sprintf("%dk/branches=4", tokens>>10), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p := k.IDs(ids)
				for _, branch := range branches {
					p.Offer(branch)
				}
			}
		})
	}
}

// BenchmarkTurn is what one turn hashes that uses a ticket: its prompt of 8,000 ids for the offer, and its output.
func BenchmarkTurn(b *testing.B) {
	k := chainKey(b, "0123456789abcdef")
	ids := randomIDs(rand.New(rand.NewPCG(1, 1)), 8100, 150_000)
	c := mustChain(b, k, ids[:7900], 0, 16)
	branch := convcache.Branch{Chain: c, Tokens: c.Tokens, Groups: 1}
	b.ReportAllocs()
	for b.Loop() {
		p := k.IDs(ids[:8000])
		if !p.Offer(branch).Whole {
			b.Fatal("not offered")
		}
		g := p.Grow(16)
		g.Add(ids[8000:])
		if _, ok := g.Chain(8100); !ok {
			b.Fatal("no chain")
		}
	}
}

// BenchmarkSipHash hashes one block of 16 ids.
func BenchmarkSipHash(b *testing.B) {
	ids := randomIDs(rand.New(rand.NewPCG(1, 1)), 16, 150_000)
	b.SetBytes(64)
	hash := uint64(0)
	for b.Loop() {
		hash = convcache.SipHash(1, 2, hash, ids, false)
	}
}
