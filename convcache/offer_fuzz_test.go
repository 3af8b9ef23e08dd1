package convcache_test

import (
	"slices"
	"testing"

	"carryover/convcache"
)

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
		c, ok := k.Chain(prompt, output, len(held), int(blockSize))
		if ok != (len(held) > 0) {
			t.Fatalf("chain of %d ids: got %v", len(held), ok)
		}
		if !ok {
			return
		}
		want := naiveOffer(held, ids, int(blockSize))
		if got := k.Offer(c, ids); got != want {
			t.Fatalf("prompt %q, output %q, %d tokens in blocks of %d, offered to %q: got %+v, want %+v",
				promptText, outputText, len(held), blockSize, newText, got, want)
		}
		if got := k.Offer(c, held); got != (convcache.Offer{Tokens: len(held), Whole: true}) {
			t.Fatalf("offered to its own ids: got %+v, want all %d", got, len(held))
		}
		checkDamaged(t, k.IDs(ids), c, damage, want)
	})
}

// checkDamaged changes one thing in the chain, at the place that damage says, and checks that no more is
// offered than what is the same in truth.
func checkDamaged(t *testing.T, p *convcache.IDs, c convcache.Chain, damage uint8, most convcache.Offer) {
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
	got := p.Offer(convcache.Branch{Chain: c, Tokens: c.Tokens})
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
