package convcache_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"carryover/convcache"
)

func chainKey(tb testing.TB, secret string) convcache.ChainKey {
	tb.Helper()
	s, err := convcache.NewSecret([]byte(secret))
	if err != nil {
		tb.Fatal(err)
	}
	return s.ChainKey()
}

// mustChain makes a chain over exactly the given ids, with a prompt of the given length.
func mustChain(tb testing.TB, k convcache.ChainKey, held []uint32, prompt, blockSize int) convcache.Chain {
	tb.Helper()
	c, ok := k.Chain(held[:prompt], held[prompt:], len(held), blockSize)
	if !ok {
		tb.Fatalf("chain of %d ids in blocks of %d: got none", len(held), blockSize)
	}
	return c
}

func TestChainKey_IsNeverPrintedAndBelongsToTheSecret(t *testing.T) {
	k := chainKey(t, "0123456789abcdef")
	k0, k1 := k.Halves()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(verb, k); got != "[chain key]" {
			t.Errorf("%s: got %q, want %q", verb, got, "[chain key]")
		}
	}
	if nested := fmt.Sprintf("%v", struct{ K convcache.ChainKey }{k}); strings.Contains(nested, fmt.Sprint(k0)) {
		t.Errorf("nested: got %q, which shows the key", nested)
	}
	mac := hmac.New(sha256.New, []byte("0123456789abcdef"))
	mac.Write([]byte("\x03chain"))
	sum := mac.Sum(nil)
	if w0, w1 := binary.LittleEndian.Uint64(sum), binary.LittleEndian.Uint64(sum[8:16]); k0 != w0 || k1 != w1 {
		t.Errorf("key: got %#x %#x, want %#x %#x", k0, k1, w0, w1)
	}
	ids := []uint32{1, 2, 3, 4}
	c := mustChain(t, k, ids, 2, 2)
	if got := chainKey(t, "fedcba9876543210").Offer(c, ids); got != (convcache.Offer{}) {
		t.Errorf("under another secret: got %+v, want nothing", got)
	}
}

// The chain is a wire format: replicas of one version and the next must agree on it.
func TestChain_IsWhatItsCommentSays(t *testing.T) {
	k := chainKey(t, "0123456789abcdef")
	k0, k1 := k.Halves()
	rng := rand.New(rand.NewPCG(3, 4))
	for _, blockSize := range []int{0, 1, 2, 3, 16, 33} {
		for tokens := range 140 {
			if tokens == 0 {
				continue
			}
			ids := randomIDs(rng, tokens, 1<<32-1)
			prompt := rng.IntN(tokens + 1)
			got := mustChain(t, k, ids, prompt, blockSize)

			step := blockSize
			if step == 0 {
				step = 64
			}
			var previous uint64
			var blocks []uint64
			rest := ids
			for ; len(rest) >= step; rest = rest[step:] {
				previous = refSip(k0, k1, message(previous, rest[:step], false))
				blocks = append(blocks, previous)
			}
			if blockSize == 0 {
				blocks = nil
			}
			whole := refSip(k0, k1, message(previous, rest, true))
			if !slices.Equal(got.Blocks, blocks) || got.Whole != whole || got.Tokens != tokens || got.BlockSize != blockSize {
				t.Fatalf("%d ids in blocks of %d, prompt of %d: got %+v, want blocks %v, whole %v", tokens, blockSize, prompt, got, blocks, whole)
			}
		}
	}
}

func TestChain_IsFixed(t *testing.T) {
	c := mustChain(t, chainKey(t, "0123456789abcdef"), []uint32{1, 2, 3, 4, 5}, 3, 2)
	const wantFirst, wantSecond, wantWhole = 0xaf623d3d302c1a7, 0x7d2b9260ec7360e5, 0xa1d652fc8f250446
	if len(c.Blocks) != 2 || c.Blocks[0] != wantFirst || c.Blocks[1] != wantSecond || c.Whole != wantWhole {
		t.Errorf("chain: got %#x, whole %#x, want %#x %#x, whole %#x", c.Blocks, c.Whole, uint64(wantFirst), uint64(wantSecond), uint64(wantWhole))
	}
}

func TestChain_WantsAllTokensOrOneLess(t *testing.T) {
	k := chainKey(t, "0123456789abcdef")
	for _, tc := range []struct {
		prompt, output, tokens, blockSize int
		ok                                bool
	}{
		{10, 5, 15, 4, true},
		{10, 5, 14, 4, true},
		{10, 5, 14, 0, true},
		{10, 5, 16, 4, false},
		{10, 5, 13, 4, false},
		{10, 5, 0, 4, false},
		{10, 5, -1, 4, false},
		{10, 5, 14, -4, false},
		{10, 0, 10, 4, true},
		{10, 1, 10, 4, true},
		{0, 5, 4, 4, true},
		{0, 1, 0, 4, false},
		{0, 0, 0, 4, false},
		{0, 0, -1, 4, false},
	} {
		c, ok := k.Chain(make([]uint32, tc.prompt), make([]uint32, tc.output), tc.tokens, tc.blockSize)
		if ok != tc.ok || ok && c.Tokens != tc.tokens || !ok && (c.Tokens != 0 || c.Whole != 0) {
			t.Errorf("%+v: got %+v, %v", tc, c, ok)
		}
	}
}

func TestChain_CoversExactlyItsTokens(t *testing.T) {
	k := chainKey(t, "0123456789abcdef")
	prompt := []uint32{1, 2, 3, 4}
	a, _ := k.Chain(prompt, []uint32{5, 6, 7}, 6, 2) // the last sampled token has no KV
	b, _ := k.Chain(prompt, []uint32{5, 6, 8}, 6, 2)
	if a.Whole != b.Whole || !slices.Equal(a.Blocks, b.Blocks) {
		t.Error("the token without KV counts")
	}
	if got := k.Offer(a, []uint32{1, 2, 3, 4, 5, 6, 9}); got != (convcache.Offer{Tokens: 6, Whole: true}) {
		t.Errorf("offer: got %+v, want all 6", got)
	}
}

func TestChain_KeepsNothingOfTheCallersSlices(t *testing.T) {
	k := chainKey(t, "0123456789abcdef")
	prompt, output := []uint32{1, 2, 3}, []uint32{4, 5, 6}
	grown := append(prompt, 77, 78, 79)[:3] // room behind the prompt that must not be written to
	c, _ := k.Chain(grown, output, 6, 4)
	want := k.Offer(c, []uint32{1, 2, 3, 4, 5, 6})
	if grown[:6][3] != 77 || !slices.Equal(output, []uint32{4, 5, 6}) {
		t.Errorf("ids after: got %v, %v", grown[:6], output)
	}
	prompt[0], grown[0], output[0] = 9, 9, 9
	if got := k.Offer(c, []uint32{1, 2, 3, 4, 5, 6}); got != want || !got.Whole {
		t.Errorf("offer after a change of the slices: got %+v, want %+v", got, want)
	}
}

// A full block and a whole chain of the same ids have different hashes, whatever the block sizes.
func TestChain_WholeIsNoBlock(t *testing.T) {
	k := chainKey(t, "0123456789abcdef")
	ids := []uint32{1, 2, 3, 4}
	seen := map[uint64]string{}
	note := func(what string, hash uint64) {
		if other, ok := seen[hash]; ok {
			t.Errorf("%s and %s have one hash", what, other)
		}
		seen[hash] = what
	}
	block := mustChain(t, k, ids, 0, 4)
	note("a block of 4", block.Blocks[0])
	note("4 ids in a block of 4", block.Whole)
	note("4 ids in no block", mustChain(t, k, ids, 0, 5).Whole)
	halves := mustChain(t, k, ids, 0, 2)
	note("the first block of 2", halves.Blocks[0])
	note("the second block of 2", halves.Blocks[1])
	note("4 ids in blocks of 2", halves.Whole)
	note("3 ids", mustChain(t, k, ids[:3], 0, 4).Whole)
	note("3 ids and a zero", mustChain(t, k, []uint32{1, 2, 3, 0}, 0, 5).Whole)
	note("3 ids and a one", mustChain(t, k, []uint32{1, 2, 3, 1}, 0, 5).Whole)
}
