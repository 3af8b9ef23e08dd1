package convcache_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
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
