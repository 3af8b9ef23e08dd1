package convcache_test

import (
	"fmt"
	"reflect"
	"testing"
)

// However the ids come, the chain is the same, and remote_num_tokens may leave the last one out.
func TestGrowing_IDsMayComeInAnyPortions(t *testing.T) {
	key := chainKey(t, "the secret of all replicas")
	for _, size := range []int{0, 1, 4, 16} {
		for _, all := range []int{1, 3, 4, 5, 16, 17, 64, 65, 130} {
			ids := make([]uint32, all)
			for i := range ids {
				ids[i] = uint32(1000 + i)
			}
			for _, tokens := range []int{all, all - 1} {
				want, ok := key.Chain(ids, nil, tokens, size)
				for prompt := range all + 1 {
					for portion := 1; portion <= 3; portion++ {
						g := key.Grow(ids[:prompt], size)
						for rest := ids[prompt:]; len(rest) > 0; {
							n := min(portion, len(rest))
							g.Add(rest[:n])
							rest = rest[n:]
						}
						if g.Len() != all {
							t.Fatalf("Len() = %d, want %d", g.Len(), all)
						}
						got, gotOK := g.Chain(tokens)
						if gotOK != ok || fmt.Sprint(got) != fmt.Sprint(want) {
							t.Fatalf("size %d, %d ids, %d of the prompt, in portions of %d, %d tokens: got %v %v, want %v %v",
								size, all, prompt, portion, tokens, got, gotOK, want, ok)
						}
					}
				}
			}
		}
	}
}

// The end of a stream needs hashes: a prompt of 16,000 tokens takes 8 kB.
func TestGrowing_TakesEightBytesPerBlock(t *testing.T) {
	g := chainKey(t, "the secret of all replicas").Grow(make([]uint32, 16_000), 16)
	if n := g.Bytes(); n > 8*1000+200 {
		t.Errorf("takes %d bytes", n)
	}
	ids := []uint32{1, 2, 3}
	g.Add(ids)
	ids[0] = 9
	again := chainKey(t, "the secret of all replicas").Grow(make([]uint32, 16_000), 16)
	again.Add([]uint32{1, 2, 3})
	a, _ := g.Chain(16_003)
	b, _ := again.Chain(16_003)
	if !reflect.DeepEqual(a, b) {
		t.Error("keeps the caller's ids")
	}
}
