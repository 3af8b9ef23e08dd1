package convcache_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"carryover/convcache"
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

// What an offer has hashed of a prompt is part of the chain of its turn, whatever of it was hashed, and in blocks of which size.
func TestGrowing_GoesOnFromWhatAnOfferHasHashed(t *testing.T) {
	key := chainKey(t, "the secret of all replicas")
	ids := randomIDs(rand.New(rand.NewPCG(21, 22)), 140, 1<<32-1)
	for _, size := range []int{0, 1, 4, 16, 64} {
		for _, prompt := range []int{0, 1, 15, 16, 17, 63, 64, 65, 128, 129} {
			for _, held := range []int{0, 1, 16, 32, 60, 64, 100, 128, 130} {
				p := key.IDs(ids[:prompt])
				for _, of := range []int{size, 16, 0} {
					if held > 0 {
						c := mustChain(t, key, ids[:held], 0, of)
						p.Offer(convcache.Branch{Chain: c, Tokens: c.Tokens})
					}
					for all := max(prompt, 1); all <= min(prompt+40, len(ids)); all++ {
						for _, tokens := range []int{all, all - 1} {
							want, wantOK := key.Chain(ids[:prompt], ids[prompt:all], tokens, size)
							g := p.Grow(size)
							g.Add(ids[prompt:all])
							got, ok := g.Chain(tokens)
							if ok != wantOK || !reflect.DeepEqual(got, want) {
								t.Fatalf("blocks of %d, prompt of %d, %d tokens of %d, after an offer of %d in blocks of %d: got %v, %t, want %v, %t",
									size, prompt, tokens, all, held, of, got, ok, want, wantOK)
							}
						}
					}
				}
			}
		}
	}
}

// Two chains of one prompt, as of two attempts, have nothing in common that one could change.
func TestGrowing_SharesNothingWithTheOffer(t *testing.T) {
	key := chainKey(t, "the secret of all replicas")
	ids := randomIDs(rand.New(rand.NewPCG(23, 24)), 100, 1<<32-1)
	c := mustChain(t, key, ids, 0, 16)
	p := key.IDs(ids)
	p.Offer(convcache.Branch{Chain: c, Tokens: c.Tokens})
	a, b := p.Grow(16), p.Grow(16)
	a.Add(ids[:40])
	b.Add(ids[50:90])
	gotA, _ := a.Chain(140)
	gotB, _ := b.Chain(140)
	wantA, _ := key.Chain(ids, ids[:40], 140, 16)
	wantB, _ := key.Chain(ids, ids[50:90], 140, 16)
	if !reflect.DeepEqual(gotA, wantA) || !reflect.DeepEqual(gotB, wantB) {
		t.Errorf("got %v and %v, want %v and %v", gotA, gotB, wantA, wantB)
	}
	if o := p.Offer(convcache.Branch{Chain: c, Tokens: c.Tokens}); !o.Whole {
		t.Errorf("offer behind both: got %+v, want all", o)
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
