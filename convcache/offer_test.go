package convcache

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// naiveOffer says what may be used by comparing ids.
func naiveOffer(held, ids []uint32, blockSize int) Offer {
	common := 0
	for common < min(len(held), len(ids)) && held[common] == ids[common] {
		common++
	}
	switch {
	case common == len(held):
		return Offer{Tokens: common, Whole: true}
	case blockSize == 0:
		return Offer{}
	}
	return Offer{Tokens: common / blockSize * blockSize}
}

func TestOffer_ChainsThatContradictThemselvesOfferNoMore(t *testing.T) {
	k := chainKey(t, "0123456789abcdef")
	ids := randomIDs(rand.New(rand.NewPCG(7, 8)), 40, 1<<32-1)
	edited := slices.Clone(ids)
	edited[13]++
	for _, blockSize := range []int{0, 1, 4, 16} {
		c := mustChain(t, k, ids[:20], 10, blockSize)
		for _, now := range [][]uint32{ids, ids[:20], ids[:18], edited, nil} {
			for damage := range 256 {
				checkDamaged(t, k.IDs(now), c, uint8(damage), naiveOffer(ids[:20], now, max(blockSize, 1)))
			}
		}
		c.BlockSize = -4
		if got := offerOf(k, c, ids); got != (Offer{}) {
			t.Errorf("blocks of less than nothing: got %+v", got)
		}
	}
	c := mustChain(t, k, ids[:20], 10, 4)
	c.Blocks = c.Blocks[:3]
	if got := offerOf(k, c, ids); got != (Offer{Tokens: 12}) {
		t.Errorf("without two of its blocks: got %+v, want the three", got)
	}
}

func TestIDs_HashesOnce(t *testing.T) {
	k := chainKey(t, "0123456789abcdef")
	held := randomIDs(rand.New(rand.NewPCG(17, 18)), 4000, 1<<32-1)
	edited := slices.Clone(held)
	edited[3900]++
	for _, blockSize := range []int{0, 16} {
		c := mustChain(t, k, held, 20, blockSize)
		b := Branch{Chain: c, Tokens: c.Tokens}
		for _, ids := range [][]uint32{held, edited} {
			p := k.IDs(ids)
			p.Offer(b)
			if got := testing.AllocsPerRun(10, func() { p.Offer(b) }); got != 0 {
				t.Errorf("second look in blocks of %d: got %v allocations, want 0: nothing is left to hash", blockSize, got)
			}
		}
	}
}

func TestIDs_OfferOfABranchWhoseChainIsNotItsTokens(t *testing.T) {
	k := chainKey(t, "0123456789abcdef")
	held := randomIDs(rand.New(rand.NewPCG(9, 10)), 40, 1<<32-1)
	for _, b := range []Branch{{Chain: mustChain(t, k, held, 20, 16), Tokens: 41}, {Chain: mustChain(t, k, held, 20, 16), Tokens: 39}, {Tokens: 40}, {}} {
		if got := k.IDs(held).Offer(b); got != (Offer{}) {
			t.Errorf("of %d tokens with a chain of %d: got %+v, want nothing", b.Tokens, b.Chain.Tokens, got)
		}
	}
}

// Branches of several block sizes are held against one IDs in random order, and each is compared with what the ids themselves say: they are
// equal up to a place, and edited there, in one bit, or go on otherwise.
func TestIDs_BranchesShareTheWork(t *testing.T) {
	k := chainKey(t, "0123456789abcdef")
	rng := rand.New(rand.NewPCG(11, 12))
	for round := range 4000 {
		ids := randomIDs(rng, rng.IntN(150), 1)
		p := k.IDs(ids)
		for n := range 8 {
			held := append(slices.Clone(ids[:rng.IntN(len(ids)+1)]), randomIDs(rng, rng.IntN(40), 1)...)
			if rng.IntN(4) == 0 && len(ids) > 0 {
				held = append(slices.Clone(ids), 1)
				held[rng.IntN(len(ids))] ^= 1 << rng.IntN(32)
			}
			if len(held) == 0 {
				continue
			}
			blockSize := []int{0, 1, 2, 5, 16, 64}[rng.IntN(6)]
			c := mustChain(t, k, held, rng.IntN(len(held)+1), blockSize)
			if got, want := p.Offer(Branch{Chain: c, Tokens: c.Tokens}), naiveOffer(held, ids, blockSize); got != want {
				t.Fatalf("round %d, branch %d in blocks of %d: got %+v, want %+v", round, n, blockSize, got, want)
			}
		}
	}
}

// FuzzOffer compares offers with what the ids themselves say, for chains as they are made and for
// chains that were damaged on the way. Each byte is an id, so that equal stretches are common.
func FuzzOffer(f *testing.F) {
	f.Add([]byte("a prompt of some ids"), []byte(" and output"), []byte("a prompt of some ids and output, more"), uint8(4), uint8(0), true)
	f.Add([]byte("0123456789abcdef"), []byte("0123456789abcdefg"), []byte("0123456789abcdef0123456789abcdef"), uint8(16), uint8(0), true)
	f.Add([]byte("abcabcabc"), []byte(""), []byte("abcabc"), uint8(3), uint8(1), false)
	f.Add([]byte(""), []byte("x"), []byte(""), uint8(0), uint8(0), false)
	f.Fuzz(func(t *testing.T, promptText, outputText, newText []byte, blockSize, damage uint8, lastUncached bool) {
		k := chainKey(t, "0123456789abcdef")
		prompt, output, ids := idsOf(promptText), idsOf(outputText), idsOf(newText)
		held := slices.Concat(prompt, output)
		if lastUncached && len(held) > 0 {
			held = held[:len(held)-1]
		}
		c, ok := chainOf(k, prompt, output, len(held), int(blockSize))
		if ok != (len(held) > 0) {
			t.Fatalf("chain of %d ids: got %v", len(held), ok)
		}
		if !ok {
			return
		}
		want := naiveOffer(held, ids, int(blockSize))
		if got := offerOf(k, c, ids); got != want {
			t.Fatalf("prompt %q, output %q, %d tokens in blocks of %d, offered to %q: got %+v, want %+v",
				promptText, outputText, len(held), blockSize, newText, got, want)
		}
		if got := offerOf(k, c, held); got != (Offer{Tokens: len(held), Whole: true}) {
			t.Fatalf("offered to its own ids: got %+v, want all %d", got, len(held))
		}
		checkDamaged(t, k.IDs(ids), c, damage, want)
	})
}

// checkDamaged changes one thing in the chain, at the place that damage says, and checks that no more is
// offered than what is the same in truth.
func checkDamaged(t *testing.T, p *IDs, c Chain, damage uint8, most Offer) {
	t.Helper()
	blocks := c.Blocks
	c.Blocks = slices.Clone(blocks)
	at := int(damage) / 8
	switch damage % 8 {
	case 1:
		c.Whole ^= 1 << (at % 32)
	case 2:
		c.Tokens += at
	case 3:
		c.Tokens -= at
	case 4:
		c.BlockSize = at
	case 5:
		c.Blocks = c.Blocks[:min(at, len(blocks))]
	case 6:
		if at < len(blocks) {
			c.Blocks[at] ^= 1
		}
	case 7:
		c.Blocks = append(c.Blocks, uint64(at))
	}
	got := p.Offer(Branch{Chain: c, Tokens: c.Tokens})
	if got.Tokens > most.Tokens || got.Whole && !most.Whole {
		t.Fatalf("damage %d: chain %+v: got %+v, want no more than %+v", damage, c, got, most)
	}
}

func idsOf(text []byte) []uint32 {
	ids := make([]uint32, len(text))
	for i, b := range text {
		ids[i] = uint32(b)
	}
	return ids
}
