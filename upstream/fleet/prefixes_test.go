package fleet

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet/prefixindex"
)

// size is how much a prefix index remembers: pieces of both generations, incarnations that have computed any, engines whose cached blocks are
// known, and marks.
type size struct{ Pieces, Computed, Caches, Marks int }

func sizeOf(index *prefixindex.Index) size {
	in := reflect.ValueOf(index).Elem().FieldByName
	return size{in("young").Len() + in("old").Len(), in("computed").Len(), int(in("told").Int()), in("marks").Len()}
}

// hashOf extends a hash.
func hashOf[T byte | uint32](hash uint64, by []T) uint64 {
	for _, one := range by {
		hash = (hash ^ uint64(one) + 1) * 0xbf58476d1ce4e5b9
		hash ^= hash >> 31
	}
	return hash
}

// blocksOf are the blocks of a prompt. Their hashes are the engine's, and mean nothing.
func blocksOf(ids []uint32, size int) prefixindex.Blocks {
	b := prefixindex.Blocks{Root: true, Tokens: ids[:len(ids)/size*size], Size: size}
	hash := uint64(1)
	for at := 0; at+size <= len(ids); at += size {
		hash = hashOf(hash, ids[at:at+size])
		b.Hashes = append(b.Hashes, hash)
	}
	return b
}

// blocks are a prompt's blocks as an engine files them, as far as that, salted and by an adapter.
func blocks(e *Engine, p prefixindex.ComputedPrompt, tokens int) prefixindex.Blocks {
	b := blocksOf(p.IDs[:tokens], p.BlockSize)
	b.Adapter = p.Model
	if p.Salt != "" {
		b.Extra = make([]string, len(b.Hashes))
		b.Extra[0] = p.Salt
	}
	for i := range b.Hashes { // each engine has hashes of its own
		b.Hashes[i] = hashOf(b.Hashes[i], []byte(e.Name+p.Salt+p.Model))
	}
	return b
}

func TestPrefixes(t *testing.T) {
	const two, telling = "add p0 p1 d0; tell 1;", "add p0 p1; tell 1; p0 starts; p1 starts; turn chain=1x8;"
	scripts{
		"who has computed the beginning": two + "turn chain=1x5; p1 sees p1; turn chain=1x5+2x3; p sees p0 p1/5; p sees p0/8 p1/5; turn chain=1x5+3x3; p1 sees p1/5;" +
			"turn chain=1x4+9x9; p1 sees p1/4; turn chain=7x4; p1 sees p1; turn; p sees p0 p1; turn chain=1x5; d sees d0; p1 tells 2; turn chain=1x5+2x3; p sees p0/8 p1;" +
			"p1 tells 1; turn chain=1x5+3x3; p0 sees p0/5; p0 refuses; pass 2s; p0 sees p0; p0 tells 1; p0 sees p0/8; set p1; set p0 p1; p0 returns anew; p0 tells 1; p0 sees p0",
		"the four newest": "add p0 p1 p2 p3 p4 p5; tell 1; turn chain=1x3; p0 sees p0; p1 sees p1; p2 sees p2; p3 sees p3; p4 sees p4; p5 sees p5;" +
			"p sees p0 p1 p2/3 p3/3 p4/3 p5/3",
		"what is over keeps nothing":       two + "p0 tells 2; set p0; p0.1 computed 1x3; p1.1 computed 1x3; indexed 0",
		"what comes back is indexed again": two + "turn chain=1x5; p0 sees p0; turn; p0 begins p0; set p1; set p0 p1; p0 returns same; turn chain=1x5; p0 sees p0+1; p0 sees p0+1/5",
		"what was handed back to another": two + "turn chain=1x5; p0 sees p0; p1 computed 1x5; turn chain=1x5+2x3; p1 sees p1/5; p1 tells 2; p1.1 computed 1x5; p1 forgets;" +
			"p1. computed 1x5; p0 sees p0/5; p1 sees p1; indexed 1",
		// Prefill reads 3000 tokens from decode, the beginning of those 4000; of the last 1000 it has 200. Of a long prompt the chain tells the
		// beginning only: eight pieces are some 2048 tokens.
		"they shorten the delay": paced + "turn chain=1x8; p0 sees p0~1ms; turn tokens=1000 chain=1x10; p weighs p0/8~200ms p1~1s; turn tokens=1000 chain=1x10 holds=d0.1:3000;" +
			"p weighs p0/8~800ms p1~1s; turn tokens=1000 chain=1x10 holds=d0.1:9000; p weighs p0/8~1s p1~1s; turn tokens=1000 chain=1x8; p weighs p0/8~1ms p1~1s;" +
			"turn tokens=100000 chain=1x8+2x120; p weighs p0/8~1m37.952s p1~1m40s",

		"cached blocks count instead of what was sent": telling + "p sees p0 p1; p sees p0/8 p1;" + // its tokens are not known yet
			"p0 knows 1x8; p sees p0 p1; p0 stores 1x8 8; p sees p0/8 p1; p1 stores 1x8 3; p sees p0/8 p1/3; turn chain=1x8+2x4; p sees p0/8 p1/3; p sees p0/12 p1/3;" +
			"p0 knows 1x8+2x4; p sees p0/8 p1/3; p0 evicts 1x8 112 128; p sees p0/7 p1/3; p0 evicts 1x8 16 112; p sees p0/1 p1/3; p0 evicts 1x8 0 16; p sees p0 p1/3;" +
			"p1 starts; p sees p0 p1; p1 stores 1x8+2x4 12; p sees p0 p1/12; turn chain=1x8; p sees p0 p1/8; p0 caches 0; p1 caches 192; marks 24",
		"of other sizes": telling + "p0 knows 1x8; p0 stores 1x8/64 5; p1 stores 1x8/512 4; p sees p0/5 p1/4", // the latter have fewer places
		"what is held is not known": telling + "p sees p0 p1; p0 knows 1x8; p sees p0 p1; p0 loses; p sees p0/8 p1;" +
			"p0 stores 1x8 4; p sees p0/8 p1; p0 starts; p sees p0 p1;" + // what was stored before is not all
			"p0 stores 1x8 4; p1 stores 1x8 6; p sees p0/4 p1/6; set p0; p1 stores 1x8 8; p1 starts; p1 caches -1; set p0 p1; p1 returns anew; p1 tells 1; p sees p0/4 p1;" +
			"p0 loses; p0 caches -1; marks 0",
	}.run(t)
}

func TestPrefixes_AreBounded(t *testing.T) {
	r := newRig(t)
	r.play("add p0 p1; tell 1")
	common := chain(1, 2)
	for i := range 4 * prefixindex.MaxPieces / body.MaxChain {
		r.told["p0"].computed.Record(append(common, chain(10+i, body.MaxChain-2)...))
	}
	if n := sizeOf(r.Prefixes).Pieces; n > 2*(prefixindex.MaxPieces+body.MaxChain) {
		t.Errorf("%d pieces are remembered", n)
	}
	r.play("turn chain=1x2; p weighs p0/2 p1; turn chain=10x3; p weighs p0 p1") // what is used is not forgotten
}

// Blocks that are stored one after another, as generated tokens fill them, make one prompt.
func TestCachedBlocks_FollowTheirParents(t *testing.T) {
	r := newRig(t)
	r.play("add p0; tell 1; p0 starts; p0 knows 1x4; turn chain=1x4")
	cache, prompt := r.engines["p0"].Cache, chainOf("1x4")
	all := blocksOf(prompt.IDs, 16)
	for i, hash := range all.Hashes {
		b := prefixindex.Blocks{Root: i == 0, Hashes: []uint64{hash}, Tokens: prompt.IDs[i*16 : (i+1)*16], Size: 16}
		if i > 0 {
			b.Parent = all.Hashes[i-1]
		}
		cache.Stored(b)
	}
	r.play("p sees p0/4; p0 starts")
	cache.Stored(prefixindex.Blocks{Parent: all.Hashes[0], Hashes: all.Hashes[1:], Tokens: prompt.IDs[16:], Size: 16})
	r.play("p sees p0") // behind a block that is not known
}

// KV of another adapter or salt is another's.
func TestCachedBlocks_AdaptersAndSalts(t *testing.T) {
	r := newRig(t)
	r.play("add p0 p1; tell 1; p0 starts; p1 starts")
	plain, salted, adapted := chainOf("1x4"), chainOf("2x4"), chainOf("3x4")
	salted.IDs, salted.Salt = plain.IDs, "salt"
	adapted.IDs, adapted.Model = plain.IDs, "adapter"
	store := func(name string, p prefixindex.ComputedPrompt) {
		r.engines[name].Cache.Stored(blocks(r.engines[name], p, len(p.IDs)))
	}
	store("p1", adapted)
	for _, prompt := range []prefixindex.ComputedPrompt{plain, salted, adapted} {
		if prompt.Model == "" {
			prompt.Model = "base" // which no block names
		}
		r.Prefixes.IndexPrompt(prompt)
	}
	r.play("turn chain=1x4; p sees p0 p1; turn chain=3x4; p sees p0 p1/4")
	store("p0", salted)
	r.play("turn chain=1x4; p sees p0 p1; turn chain=2x4; p sees p0/4 p1")
	store("p1", plain)
	r.play("turn chain=1x4; p sees p0 p1/4")
}

func TestCachedBlocks_AreBounded(t *testing.T) {
	r := newRig(t)
	r.play("add p0; tell 1; p0 starts")
	ids := make([]uint32, 4096)
	for n := 0; n <= prefixindex.MaxCachedBlocks/len(ids); n++ {
		ids[0] = uint32(n)
		r.engines["p0"].Cache.Stored(blocksOf(ids, 1))
	}
	r.play("p0 caches -1; marks 0")
}

// Whatever is stored, evicted, lost and begun anew: picks see of each engine what it holds.
func TestCachedBlocks_AsEnginesHold(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	r := newRig(t)
	prompt := chainOf("1x10")
	held := map[*Engine]int{} // tokens; -1 is not known
	var engines []*Engine
	for n := range 70 { // more than fit one word
		engines = append(engines, r.named("p"+string(rune('A'+n)))...)
		held[engines[n]] = -1
	}
	r.play("tell 1; pA starts; turn chain=1x10; pA knows 1x10")
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
				all := blocks(e, prompt, held[e])
				keep := random.IntN(len(all.Hashes))
				e.Cache.Removed(all.Hashes[keep:])
				held[e] = keep * 16
			}
		default:
			tokens := random.IntN(len(prompt.IDs) + 1)
			e.Cache.Stored(blocks(e, prompt, tokens))
			if held[e] >= 0 {
				held[e] = max(held[e], tokens/16*16)
			}
		}
	}
	if _, err := r.Choose(upstream.RolePrefill, r.hint, nil); err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, e := range engines {
		if got, want := r.seen.candidates[e.Name].Prefix, max(held[e], 0)/prefixindex.TokensPerPiece; got != want {
			t.Errorf("%s holds %d tokens and counts as having %d pieces, want %d", e.Name, held[e], got, want)
		}
		if e.Cache.Count() >= 0 {
			told++
		}
	}
	if got := sizeOf(r.Prefixes).Caches; got != told {
		t.Errorf("%d engines have a place among those that tell, want %d", got, told)
	}
}
