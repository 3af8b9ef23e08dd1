package convcache

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// chainOf is the chain of a prompt and its output that are there at once.
func chainOf(k ChainKey, prompt, output []uint32, tokens, blockSize int) (Chain, bool) {
	g := k.IDs(prompt).Grow(blockSize)
	g.Add(output)
	return g.Chain(tokens)
}

// mustChain makes a chain over exactly the given ids, with a prompt of the given length.
func mustChain(tb testing.TB, k ChainKey, held []uint32, prompt, blockSize int) Chain {
	tb.Helper()
	c, ok := chainOf(k, held[:prompt], held[prompt:], len(held), blockSize)
	if !ok {
		tb.Fatalf("chain of %d ids in blocks of %d: got none", len(held), blockSize)
	}
	return c
}

// offerOf is what is offered of a ticket that has the chain.
func offerOf(k ChainKey, c Chain, ids []uint32) Offer {
	return k.IDs(ids).Offer(Branch{Chain: c, Tokens: c.Tokens})
}

func TestChainKey_BelongsToTheSecret(t *testing.T) {
	k := chainKey(t, "0123456789abcdef")
	mac := hmac.New(sha256.New, []byte("0123456789abcdef"))
	mac.Write([]byte("\x03chain"))
	sum := mac.Sum(nil)
	if want := (ChainKey{binary.LittleEndian.Uint64(sum), binary.LittleEndian.Uint64(sum[8:16])}); k.k0 != want.k0 || k.k1 != want.k1 {
		t.Error("key: got another than the HMAC")
	}
	ids := []uint32{1, 2, 3, 4}
	if got := offerOf(chainKey(t, "fedcba9876543210"), mustChain(t, k, ids, 2, 2), ids); got != (Offer{}) {
		t.Errorf("under another secret: got %+v, want nothing", got)
	}
}

// The chain is a wire format: replicas of one version and the next must agree on it.
func TestChain_IsWhatItsCommentSays(t *testing.T) {
	k := chainKey(t, "0123456789abcdef")
	k0, k1 := k.k0, k.k1
	rng := rand.New(rand.NewPCG(3, 4))
	for _, blockSize := range []int{0, 1, 2, 3, 16, 33} {
		for tokens := range 140 {
			if tokens == 0 {
				continue
			}
			ids := randomIDs(rng, tokens, 1<<32-1)
			prompt := rng.IntN(tokens + 1)
			// However the ids come, the chain is the same, and the last one may be left out.
			g := k.IDs(ids[:prompt]).Grow(blockSize)
			for more := ids[prompt:]; len(more) > 0; {
				n := 1 + rng.IntN(len(more))
				g.Add(more[:n])
				more = more[n:]
			}
			g.Add(make([]uint32, rng.IntN(2)))
			got, ok := g.Chain(tokens)
			if !ok || g.Len() < tokens {
				t.Fatalf("%d ids in blocks of %d: got no chain", tokens, blockSize)
			}

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

func TestChain_WantsAllTokensOrOneLess(t *testing.T) {
	k := chainKey(t, "0123456789abcdef")
	for row, want := range map[[4]int]bool{ // prompt, output, tokens, block size
		{10, 5, 15, 4}: true, {10, 5, 14, 4}: true, {10, 5, 14, 0}: true, {10, 0, 10, 4}: true, {10, 1, 10, 4}: true, {0, 5, 4, 4}: true,
		{10, 5, 16, 4}: false, {10, 5, 13, 4}: false, {10, 5, 0, 4}: false, {10, 5, -1, 4}: false, {10, 5, 14, -4}: false,
		{0, 1, 0, 4}: false, {0, 0, 0, 4}: false, {0, 0, -1, 4}: false,
	} {
		c, ok := chainOf(k, make([]uint32, row[0]), make([]uint32, row[1]), row[2], row[3])
		if ok != want || ok && c.Tokens != row[2] || !ok && (c.Tokens != 0 || c.Whole != 0) {
			t.Errorf("%v: got %+v, %v", row, c, ok)
		}
	}
}

func TestChain_KeepsNothingOfTheCallersSlices(t *testing.T) {
	k := chainKey(t, "0123456789abcdef")
	prompt, output := []uint32{1, 2, 3, 77, 78, 79}, []uint32{4, 5, 6} // room behind the prompt that must not be written to
	g := k.IDs(prompt[:3]).Grow(4)
	g.Add(output)
	if prompt[3] != 77 {
		t.Errorf("ids after: got %v", prompt)
	}
	clear(prompt)
	clear(output)
	c, _ := g.Chain(6)
	if got := offerOf(k, c, []uint32{1, 2, 3, 4, 5, 6}); !got.Whole {
		t.Errorf("offer after a change of the slices: got %+v, want all", got)
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
						p.Offer(Branch{Chain: c, Tokens: c.Tokens})
					}
					for all := max(prompt, 1); all <= min(prompt+40, len(ids)); all++ {
						for _, tokens := range []int{all, all - 1} {
							want, wantOK := chainOf(key, ids[:prompt], ids[prompt:all], tokens, size)
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
	held := Branch{Chain: mustChain(t, key, ids, 0, 16), Tokens: 100}
	p := key.IDs(ids)
	p.Offer(held)
	turns := []*Growing{p.Grow(16), p.Grow(16)}
	for i, g := range turns {
		g.Add(ids[50*i:][:40])
	}
	for i, g := range turns {
		got, _ := g.Chain(140)
		if want, _ := chainOf(key, ids, ids[50*i:][:40], 140, 16); !reflect.DeepEqual(got, want) {
			t.Errorf("turn %d: got %v, want %v", i, got, want)
		}
	}
	if o := p.Offer(held); !o.Whole {
		t.Errorf("offer behind both: got %+v, want all", o)
	}
}

// The end of a stream needs hashes: a prompt of 16,000 tokens takes 8 kB.
func TestGrowing_TakesEightBytesPerBlock(t *testing.T) {
	if n := chainKey(t, "the secret of all replicas").IDs(make([]uint32, 16_000)).Grow(16).Bytes(); n > 8*1000+200 {
		t.Errorf("takes %d bytes", n)
	}
}

// sipVectors are outputs of the reference implementation of SipHash-2-4 for the key 00 01 … 0f and messages 00 01 02 … by their length
// (github.com/veorq/SipHash, vectors.h, vectors_sip64): those of the lengths that a chain hashes, with and without its last byte.
var sipVectors = map[int]uint64{
	8: 0x93f5f5799a932462, 9: 0x9e0082df0ba9e4b0, 12: 0x751e8fbc860ee5fb, 13: 0x14ea5627c0843d90,
	16: 0x3f2acc7f57c29bdb, 20: 0xbed65cf21aa2ee98, 24: 0xb8ad50c6f649af94, 28: 0xde4daaaca71dc9a5,
	32: 0x7127512f72f27cce, 36: 0x314dffbe0815a3b4, 40: 0x0e3ea96b5304a7d0, 44: 0xf935451de4f21df2,
	48: 0xe612a3cb9ecba951, 52: 0x0a8787bf8ecb74b2, 56: 0xb78dbfaf3a8d83bd, 60: 0x6ca4ecb15c5f91e1,
	61: 0x9f626da15c9625f3,
}

// refSip is SipHash-2-4 of any bytes, written from the paper for clarity.
func refSip(k0, k1 uint64, message []byte) uint64 {
	v := [4]uint64{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	rounds := func(n int) {
		for range n {
			v[0] += v[1]
			v[1] = bits.RotateLeft64(v[1], 13)
			v[1] ^= v[0]
			v[0] = bits.RotateLeft64(v[0], 32)
			v[2] += v[3]
			v[3] = bits.RotateLeft64(v[3], 16)
			v[3] ^= v[2]
			v[0] += v[3]
			v[3] = bits.RotateLeft64(v[3], 21)
			v[3] ^= v[0]
			v[2] += v[1]
			v[1] = bits.RotateLeft64(v[1], 17)
			v[1] ^= v[2]
			v[2] = bits.RotateLeft64(v[2], 32)
		}
	}
	padded := slices.Clone(message)
	for len(padded)%8 != 7 {
		padded = append(padded, 0)
	}
	padded = append(padded, byte(len(message)))
	for at := 0; at < len(padded); at += 8 {
		word := binary.LittleEndian.Uint64(padded[at:])
		v[3] ^= word
		rounds(2)
		v[0] ^= word
	}
	v[2] ^= 0xff
	rounds(4)
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

// message returns the bytes that sipHash hashes.
func message(previous uint64, ids []uint32, last bool) []byte {
	out := binary.LittleEndian.AppendUint64(nil, previous)
	for _, id := range ids {
		out = binary.LittleEndian.AppendUint32(out, id)
	}
	if last {
		out = append(out, 1)
	}
	return out
}

const vectorKey0, vectorKey1 = 0x0706050403020100, 0x0f0e0d0c0b0a0908

func TestSipHash_IsTheReference(t *testing.T) {
	var bytes [64]byte
	for i := range bytes {
		bytes[i] = byte(i)
	}
	for n, want := range sipVectors {
		if got := refSip(vectorKey0, vectorKey1, bytes[:n]); got != want {
			t.Fatalf("test's own SipHash of %d bytes: got %#x, want %#x", n, got, want)
		}
		if n%4 != 0 {
			continue
		}
		var ids []uint32
		for at := 8; at < n; at += 4 {
			ids = append(ids, binary.LittleEndian.Uint32(bytes[at:]))
		}
		if got := sipHash(ChainKey{vectorKey0, vectorKey1}, binary.LittleEndian.Uint64(bytes[:]), ids, false); got != want {
			t.Errorf("%d bytes: got %#x, want %#x", n, got, want)
		}
	}
}

// randomIDs returns n ids up to most.
func randomIDs(rng *rand.Rand, n int, most uint32) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(rng.Uint64N(uint64(most) + 1))
	}
	return ids
}

// BenchmarkChain makes the chain of a prompt and its output.
func BenchmarkChain(b *testing.B) {
	k, ids := chainKey(b, "0123456789abcdef"), randomIDs(rand.New(rand.NewPCG(1, 1)), 128<<10, 150_000)
	b.ReportAllocs()
	for b.Loop() {
		mustChain(b, k, ids, 127<<10, 16)
	}
}
