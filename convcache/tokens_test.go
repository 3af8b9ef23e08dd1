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

// naiveOffer says what may be used by comparing ids.
func naiveOffer(held, ids []uint32, blockSize int) convcache.Offer {
	common := 0
	for common < min(len(held), len(ids)) && held[common] == ids[common] {
		common++
	}
	switch {
	case common == len(held):
		return convcache.Offer{Tokens: common, Whole: true}
	case blockSize == 0:
		return convcache.Offer{}
	}
	return convcache.Offer{Tokens: common / blockSize * blockSize}
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

// TestOffer_EditsAtEveryPosition changes, removes, inserts and swaps at every position, cuts and
// extends, and compares with what the ids themselves say.
func TestOffer_EditsAtEveryPosition(t *testing.T) {
	k := chainKey(t, "0123456789abcdef")
	rng := rand.New(rand.NewPCG(5, 6))
	for _, blockSize := range []int{0, 1, 2, 5, 16, 64} {
		for _, tokens := range []int{1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128, 130} {
			held := randomIDs(rng, tokens, 7) // few ids, so that runs and repetitions occur
			c := mustChain(t, k, held, rng.IntN(tokens+1), blockSize)
			check := func(what string, ids []uint32) {
				t.Helper()
				if got, want := k.Offer(c, ids), naiveOffer(held, ids, blockSize); got != want {
					t.Errorf("%d ids in blocks of %d, %s: got %+v, want %+v", tokens, blockSize, what, got, want)
				}
			}
			check("same", held)
			check("none", nil)
			for at := range tokens + 1 {
				check(fmt.Sprintf("cut at %d", at), held[:at])
				check(fmt.Sprintf("longer by %d", at), append(slices.Clone(held), held[:at]...))
				check(fmt.Sprintf("inserted at %d", at), slices.Insert(slices.Clone(held), at, 3))
				if at == tokens {
					break
				}
				check(fmt.Sprintf("without %d", at), slices.Delete(slices.Clone(held), at, at+1))
				for _, mask := range []uint32{1, 1 << 31} {
					edited := append(slices.Clone(held), 1, 2, 3)
					edited[at] ^= mask
					check(fmt.Sprintf("edited at %d", at), edited)
				}
				swapped, other := slices.Clone(held), rng.IntN(tokens)
				swapped[at], swapped[other] = swapped[other], swapped[at]
				check(fmt.Sprintf("%d and %d swapped", at, other), swapped)
			}
		}
	}
}

func TestOffer_BlocksMoved(t *testing.T) {
	k := chainKey(t, "0123456789abcdef")
	a, b, c, d := []uint32{1, 1, 1, 1}, []uint32{2, 2, 2, 2}, []uint32{3, 3, 3, 3}, []uint32{4, 4, 4, 4}
	held := slices.Concat(a, b, c, d)
	chain := mustChain(t, k, held, 7, 4)
	for _, tc := range []struct {
		name string
		ids  []uint32
		want convcache.Offer
	}{
		{"as they were", held, convcache.Offer{Tokens: 16, Whole: true}},
		{"first two swapped", slices.Concat(b, a, c, d), convcache.Offer{}},
		{"middle two swapped", slices.Concat(a, c, b, d), convcache.Offer{Tokens: 4}},
		{"one block left out", slices.Concat(a, c, d), convcache.Offer{Tokens: 4}},
		{"one block doubled", slices.Concat(a, a, b, c, d), convcache.Offer{Tokens: 4}},
		{"edited, then the same again", slices.Concat(a, []uint32{2, 2, 2, 9}, c, d), convcache.Offer{Tokens: 4}},
		{"exactly two blocks", slices.Concat(a, b), convcache.Offer{Tokens: 8}},
		{"two blocks and most of a third", slices.Concat(a, b, c[:3]), convcache.Offer{Tokens: 8}},
	} {
		if got := k.Offer(chain, tc.ids); got != tc.want {
			t.Errorf("%s: got %+v, want %+v", tc.name, got, tc.want)
		}
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

func TestOffer_ChainsThatContradictThemselves(t *testing.T) {
	k := chainKey(t, "0123456789abcdef")
	ids := randomIDs(rand.New(rand.NewPCG(7, 8)), 40, 1<<32-1)
	good := mustChain(t, k, ids[:38], 20, 4)
	for _, tc := range []struct {
		name   string
		change func(*convcache.Chain)
		want   convcache.Offer
	}{
		{"untouched", func(*convcache.Chain) {}, convcache.Offer{Tokens: 38, Whole: true}},
		{"zero", func(c *convcache.Chain) { *c = convcache.Chain{} }, convcache.Offer{}},
		{"no tokens", func(c *convcache.Chain) { c.Tokens = 0 }, convcache.Offer{}},
		{"negative tokens", func(c *convcache.Chain) { c.Tokens = -38 }, convcache.Offer{}},
		{"negative block size", func(c *convcache.Chain) { c.BlockSize = -4 }, convcache.Offer{}},
		{"no block size", func(c *convcache.Chain) { c.BlockSize = 0 }, convcache.Offer{}},
		{"another block size", func(c *convcache.Chain) { c.BlockSize = 8 }, convcache.Offer{}},
		{"more tokens", func(c *convcache.Chain) { c.Tokens = 39 }, convcache.Offer{Tokens: 36}},
		{"fewer tokens", func(c *convcache.Chain) { c.Tokens = 37 }, convcache.Offer{Tokens: 36}},
		{"fewer tokens than blocks", func(c *convcache.Chain) { c.Tokens = 9 }, convcache.Offer{Tokens: 8}},
		{"another whole", func(c *convcache.Chain) { c.Whole++ }, convcache.Offer{Tokens: 36}},
		{"blocks missing", func(c *convcache.Chain) { c.Blocks = c.Blocks[:3] }, convcache.Offer{Tokens: 12}},
		{"no blocks", func(c *convcache.Chain) { c.Blocks = nil }, convcache.Offer{}},
		{"a block too many", func(c *convcache.Chain) { c.Blocks = append(slices.Clone(c.Blocks), 5) }, convcache.Offer{Tokens: 38, Whole: true}},
	} {
		c := good
		tc.change(&c)
		if got := k.Offer(c, ids); got != tc.want {
			t.Errorf("%s: got %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

func TestOffer_NegativeBlockSize(t *testing.T) {
	k := chainKey(t, "0123456789abcdef")
	held := []uint32{1, 2, 3}
	c := mustChain(t, k, held, 0, 4)
	c.BlockSize = -4
	if got := k.Offer(c, held); got != (convcache.Offer{}) {
		t.Errorf("offer: got %+v, want nothing of a chain that can't be", got)
	}
}

func TestIDs_HashesOnce(t *testing.T) {
	k := chainKey(t, "0123456789abcdef")
	held := randomIDs(rand.New(rand.NewPCG(17, 18)), 4000, 1<<32-1)
	edited := slices.Clone(held)
	edited[3900]++
	for _, blockSize := range []int{0, 16} {
		c := mustChain(t, k, held, 20, blockSize)
		b := convcache.Branch{Chain: c, Tokens: c.Tokens, Groups: 1}
		for _, ids := range [][]uint32{held, edited} {
			p := k.IDs(ids)
			p.Offer(b)
			if got := testing.AllocsPerRun(10, func() { p.Offer(b) }); got != 0 {
				t.Errorf("second look in blocks of %d: got %v allocations, want 0: nothing is left to hash", blockSize, got)
			}
		}
	}
}

func TestIDs_OfferOfABranch(t *testing.T) {
	k := chainKey(t, "0123456789abcdef")
	held := randomIDs(rand.New(rand.NewPCG(9, 10)), 40, 1<<32-1)
	c := mustChain(t, k, held, 20, 16)
	edited := slices.Clone(held)
	edited[39]++
	for _, tc := range []struct {
		name  string
		ids   []uint32
		b     convcache.Branch
		offer convcache.Offer
	}{
		{"whole", held, convcache.Branch{Chain: c, Tokens: 40, Groups: 1}, convcache.Offer{Tokens: 40, Whole: true}},
		{"blocks", edited, convcache.Branch{Chain: c, Tokens: 40, Groups: 1}, convcache.Offer{Tokens: 32}},
		{"whole of several groups", held, convcache.Branch{Chain: c, Tokens: 40, Groups: 2}, convcache.Offer{Tokens: 40, Whole: true}},
		{"blocks of several groups", edited, convcache.Branch{Chain: c, Tokens: 40, Groups: 2}, convcache.Offer{}},
		{"whole of an unknown number", held, convcache.Branch{Chain: c, Tokens: 40}, convcache.Offer{Tokens: 40, Whole: true}},
		{"blocks of an unknown number", edited, convcache.Branch{Chain: c, Tokens: 40}, convcache.Offer{}},
		{"chain shorter than the ticket", held, convcache.Branch{Chain: c, Tokens: 41, Groups: 1}, convcache.Offer{}},
		{"chain longer than the ticket", held, convcache.Branch{Chain: c, Tokens: 39, Groups: 1}, convcache.Offer{}},
		{"no chain", held, convcache.Branch{Tokens: 40, Groups: 1}, convcache.Offer{}},
		{"nothing at all", held, convcache.Branch{}, convcache.Offer{}},
	} {
		p := k.IDs(tc.ids)
		for range 2 { // what was hashed for the first look serves the second
			if got := p.Offer(tc.b); got != tc.offer {
				t.Errorf("%s: got %+v, want %+v", tc.name, got, tc.offer)
			}
		}
	}
}

// TestIDs_BranchesShareTheWork holds branches of several block sizes against one IDs in random order,
// and compares each with what the ids themselves say.
func TestIDs_BranchesShareTheWork(t *testing.T) {
	k := chainKey(t, "0123456789abcdef")
	rng := rand.New(rand.NewPCG(11, 12))
	for round := range 200 {
		ids := randomIDs(rng, rng.IntN(300), 1)
		p := k.IDs(ids)
		for n := range 8 {
			held := append(slices.Clone(ids[:rng.IntN(len(ids)+1)]), randomIDs(rng, 1+rng.IntN(40), 1)...)
			blockSize := []int{0, 1, 16, 64}[rng.IntN(4)]
			c := mustChain(t, k, held, 0, blockSize)
			got, want := p.Offer(convcache.Branch{Chain: c, Tokens: c.Tokens, Groups: 1}), naiveOffer(held, ids, blockSize)
			if got != want {
				t.Fatalf("round %d, branch %d in blocks of %d: got %+v, want %+v", round, n, blockSize, got, want)
			}
		}
	}
}
