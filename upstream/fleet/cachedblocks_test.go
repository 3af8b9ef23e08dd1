package fleet

import (
	"math/rand/v2"
	"testing"

	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet/prefixindex"
)

// promptOf is a prompt of so many pieces that has begun in some way and gone on in another, with as many tokens as such text has.
func promptOf(begun, length int, on, more int) prefixindex.ComputedPrompt {
	p := prefixindex.ComputedPrompt{Chain: chain(begun, length, on, more), BlockSize: 16, Bytes: (length + more) * body.ChainPiece}
	for i := range (length + more) * prefixindex.TokensPerPiece {
		token := begun<<16 | i
		if i >= length*prefixindex.TokensPerPiece {
			token = on<<24 | i
		}
		p.IDs = append(p.IDs, uint32(token))
	}
	return p
}

// computes has an engine file a prompt's blocks, as far as that, salted and by an adapter.
func computes(e *Engine, p prefixindex.ComputedPrompt, tokens int) prefixindex.Blocks {
	b := blocksOf(p.IDs[:tokens], p.BlockSize)
	b.Adapter = p.Model
	if p.Salt != "" {
		b.Extra = make([]string, len(b.Hashes))
		b.Extra[0] = p.Salt
	}
	for i := range b.Hashes { // each engine has hashes of its own
		b.Hashes[i] = hashOf(b.Hashes[i], []byte(e.Name+p.Salt+p.Model))
	}
	e.Cache.Stored(b)
	return b
}

// bothTold has both prefill engines tell what they hold.
func (w *weighing) bothTold() (p0, p1 *Engine) {
	p0, p1 = w.p[0].Engine(), w.p[1].Engine()
	p0.Cache.Started()
	p1.Cache.Started()
	return p0, p1
}

func TestCachedBlocks_CountInsteadOfWhatWasSent(t *testing.T) {
	w := newWeighing(t)
	p0, p1 := w.bothTold()
	prompt := promptOf(1, 8, 0, 0)
	w.wantPrefixes(prompt.Chain, [2]int{}, "")
	w.wantPrefixes(prompt.Chain, [2]int{8, 0}, "") // its tokens are not known yet: what was sent counts
	w.Prefixes.IndexPrompt(prompt)
	w.wantPrefixes(prompt.Chain, [2]int{}, "") // nothing is filed
	first := computes(p0, prompt, 8*prefixindex.TokensPerPiece)
	w.wantPrefixes(prompt.Chain, [2]int{8, 0}, "")
	computes(p1, prompt, 3*prefixindex.TokensPerPiece) // for another client
	w.wantPrefixes(prompt.Chain, [2]int{8, 3}, "")
	longer := promptOf(1, 8, 2, 4)
	w.wantPrefixes(longer.Chain, [2]int{8, 3}, "")
	w.wantPrefixes(longer.Chain, [2]int{12, 3}, "") // was sent to it
	w.Prefixes.IndexPrompt(longer)
	w.wantPrefixes(longer.Chain, [2]int{8, 3}, "") // and has not been computed
	for end := len(first.Hashes); end > 0; end -= 16 {
		p0.Cache.Removed(first.Hashes[end-16 : end]) // a piece, the last first
		w.wantPrefixes(longer.Chain, [2]int{end/16 - 1, 3}, "")
	}
	p1.Cache.Started()
	w.wantPrefixes(longer.Chain, [2]int{}, "")
	computes(p1, longer, 12*prefixindex.TokensPerPiece)
	w.wantPrefixes(longer.Chain, [2]int{0, 12}, "")
	w.wantPrefixes(prompt.Chain, [2]int{0, 8}, "")
	if p0, p1 := p0.Live().CachedBlocks, p1.Live().CachedBlocks; p0 != 0 || p1 != 12*prefixindex.TokensPerPiece/16 {
		t.Errorf("%d and %d blocks are held", p0, p1)
	}
	if n := sizeOf(w.Prefixes).Marks; n != 12*2 {
		t.Errorf("%d places are held, want those of one prompt", n)
	}
}

// Blocks that are stored one after another, as generated tokens fill them, make one prompt.
func TestCachedBlocks_FollowTheirParents(t *testing.T) {
	w := newWeighing(t)
	p0, _ := w.bothTold()
	prompt := promptOf(1, 4, 0, 0)
	w.Prefixes.IndexPrompt(prompt)
	all := blocksOf(prompt.IDs, 16)
	for i, hash := range all.Hashes {
		b := prefixindex.Blocks{Root: i == 0, Hashes: []uint64{hash}, Tokens: prompt.IDs[i*16 : (i+1)*16], Size: 16}
		if i > 0 {
			b.Parent = all.Hashes[i-1]
		}
		p0.Cache.Stored(b)
	}
	w.wantPrefixes(prompt.Chain, [2]int{4, 0}, "")
	p0.Cache.Started()
	p0.Cache.Stored(prefixindex.Blocks{Parent: all.Hashes[0], Hashes: all.Hashes[1:], Tokens: prompt.IDs[16:], Size: 16})
	w.wantPrefixes(prompt.Chain, [2]int{}, "") // behind a block that is not known
}

func TestCachedBlocks_OfOtherSizes(t *testing.T) {
	w := newWeighing(t)
	p0, p1 := w.bothTold()
	prompt := promptOf(1, 8, 0, 0)
	w.Prefixes.IndexPrompt(prompt)
	prompt.BlockSize = 64
	computes(p0, prompt, 5*prefixindex.TokensPerPiece)
	prompt.BlockSize = 512 // has fewer places
	computes(p1, prompt, 4*prefixindex.TokensPerPiece)
	w.wantPrefixes(prompt.Chain, [2]int{5, 4}, "")
}

// KV of another adapter or salt is another's.
func TestCachedBlocks_AdaptersAndSalts(t *testing.T) {
	w := newWeighing(t)
	p0, p1 := w.bothTold()
	plain, salted, adapted := promptOf(1, 4, 0, 0), promptOf(2, 4, 0, 0), promptOf(3, 4, 0, 0)
	salted.IDs, salted.Salt = plain.IDs, "salt"
	adapted.IDs, adapted.Model = plain.IDs, "adapter"
	computes(p1, adapted, 4*prefixindex.TokensPerPiece)
	for _, prompt := range []prefixindex.ComputedPrompt{plain, salted, adapted} {
		if prompt.Model == "" {
			prompt.Model = "base" // which no block names
		}
		w.Prefixes.IndexPrompt(prompt)
	}
	w.wantPrefixes(plain.Chain, [2]int{}, "")
	w.wantPrefixes(adapted.Chain, [2]int{0, 4}, "")
	computes(p0, salted, 4*prefixindex.TokensPerPiece)
	w.wantPrefixes(plain.Chain, [2]int{}, "")
	w.wantPrefixes(salted.Chain, [2]int{4, 0}, "")
	computes(p1, plain, 4*prefixindex.TokensPerPiece)
	w.wantPrefixes(plain.Chain, [2]int{0, 4}, "")
}

// Where it is not known what an engine holds, what was sent to it counts, as for engines that publish nothing.
func TestCachedBlocks_UnknownAgain(t *testing.T) {
	w := newWeighing(t)
	p0, p1 := w.bothTold()
	prompt := promptOf(1, 8, 0, 0)
	w.wantPrefixes(prompt.Chain, [2]int{}, "")
	w.Prefixes.IndexPrompt(prompt)
	w.wantPrefixes(prompt.Chain, [2]int{}, "")
	p0.Cache.Lost()
	w.wantPrefixes(prompt.Chain, [2]int{8, 0}, "")
	computes(p0, prompt, 4*prefixindex.TokensPerPiece) // is not all that it holds
	w.wantPrefixes(prompt.Chain, [2]int{8, 0}, "")
	p0.Cache.Started() // from here on it is
	w.wantPrefixes(prompt.Chain, [2]int{}, "")
	computes(p0, prompt, 4*prefixindex.TokensPerPiece)
	computes(p1, prompt, 6*prefixindex.TokensPerPiece)
	w.wantPrefixes(prompt.Chain, [2]int{4, 6}, "")

	w.Set(w.instances[:1]) // p1 is gone
	computes(p1, prompt, 8*prefixindex.TokensPerPiece)
	p1.Cache.Started() // too late
	w.Set(w.instances)
	tells(w.Engine(upstream.RolePrefill, "p1"), "1")
	w.wantPrefixes(prompt.Chain, [2]int{4, 0}, "")
	p0.Cache.Lost()
	if sizeOf(w.Prefixes).Caches != 0 || p0.Live().CachedBlocks != -1 {
		t.Error("an engine of which nothing is known has a place among those that tell")
	}
	if n := sizeOf(w.Prefixes); n.Marks != 0 || n.Caches != 0 || p1.Cache.Count() != -1 {
		t.Errorf("%d places of %d engines are known", n.Marks, n.Caches)
	}
}

// The delay is shortened by what is held.
func TestCachedBlocks_AreBounded(t *testing.T) {
	w := newWeighing(t)
	p0, _ := w.bothTold()
	ids := make([]uint32, 4096)
	for n := 0; n <= prefixindex.MaxCachedBlocks/len(ids); n++ {
		ids[0] = uint32(n)
		p0.Cache.Stored(blocksOf(ids, 1))
	}
	if n := p0.Cache.Count(); n != -1 || sizeOf(w.Prefixes).Caches != 1 {
		t.Errorf("%d blocks of an engine with more than %d are known", n, prefixindex.MaxCachedBlocks)
	}
	if n := sizeOf(w.Prefixes).Marks; n != 0 {
		t.Errorf("%d places are left", n)
	}
}

// Whatever is stored, evicted, lost and begun anew: picks see of each engine what it holds.
func TestCachedBlocks_AsEnginesHold(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	r := newRig(t)
	var seen seen
	r.picking.prefill = &seen
	var engines []*Engine
	for n := range 70 { // more than fit one word
		engines = append(engines, r.named(upstream.RolePrefill, "p"+string(rune('A'+n)))...)
	}
	for _, e := range engines {
		tells(e, "1")
	}
	prompt := promptOf(1, 10, 0, 0)
	engines[0].Cache.Started()
	r.Prefixes.IndexPrompt(prompt)
	held := map[*Engine]int{} // tokens; -1 is not known
	for _, e := range engines {
		held[e] = -1
	}
	held[engines[0]] = 0
	for range 2000 {
		e := engines[random.IntN(len(engines))]
		switch random.IntN(5) {
		case 0:
			e.Cache.Started()
			held[e] = 0
		case 1:
			e.Cache.Lost()
			held[e] = -1
		case 2:
			if held[e] > 0 {
				all := computes(e, prompt, held[e])
				keep := random.IntN(len(all.Hashes))
				e.Cache.Removed(all.Hashes[keep:])
				held[e] = keep * 16
			}
		default:
			tokens := random.IntN(len(prompt.IDs) + 1)
			computes(e, prompt, tokens)
			if held[e] >= 0 {
				held[e] = max(held[e], tokens/16*16)
			}
		}
	}
	for _, e := range engines {
		e.Last().computed.Drop() // what was sent does not count here
	}
	if _, _, err := r.Pick(upstream.RolePrefill, Hint{Chain: prompt.Chain}, nil); err != nil {
		t.Fatal(err)
	}
	for _, e := range engines {
		if got, want := seen.candidates[e.Name].Prefix, max(held[e], 0)/prefixindex.TokensPerPiece; got != want {
			t.Errorf("%s holds %d tokens and counts as having %d pieces, want %d", e.Name, held[e], got, want)
		}
	}
	told := 0
	for _, e := range engines {
		if e.Cache.Count() >= 0 {
			told++
		}
	}
	if got := sizeOf(r.Prefixes).Caches; got != told {
		t.Errorf("%d engines have a place among those that tell, want %d", got, told)
	}
}
