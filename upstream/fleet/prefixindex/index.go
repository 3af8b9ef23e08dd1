// Package prefixindex says which prefill engines have which beginnings of prompts in their prefix caches, so that a prompt
// goes there. Hashes of pieces of text name the beginnings. An engine has what was sent to it (index.go), or, if it
// publishes KV events, what these tell (cache.go, holders.go). It promises:
//
//   - The index is bounded and refers to no incarnation that has ended (index.go, holders.go).
//   - The cached blocks of an engine with KV events are known completely or not at all (cache.go).
//   - Hashes are seeded, so no client can construct a prompt that counts as another client's (holders.go).
//   - Events of one engine don't keep picks waiting for all of them (holders.go).
package prefixindex

import (
	"math/rand/v2"
	"sync"
)

// The index has two generations. When the young one is full it becomes the old one, and pieces of the old one that no
// prompt has used since are dropped. Both take some 11 MB. Four incarnations per piece suffice for a beginning that all
// conversations share: as engines get busy it spreads, and the newest four stay.
const (
	MaxPieces    = 1 << 16
	maxComputers = 4
)

// Index knows which prefill incarnations have computed which pieces of prompts (body.Prompt.Chain). It is a hint,
// because engines evict what they like. Pieces refer to incarnations by number; an incarnation that ends loses its
// number, so nothing of it is found or kept alive.
//
// For engines with KV events the cached blocks count, if the prompt's tokens were seen before ([Index.IndexPrompt]).
// For all other engines and prompts, what was sent to an engine counts.
type Index struct {
	mu         sync.Mutex // guards the rest; the innermost lock
	young, old map[uint64]piece
	computed   map[uint32]*Computed
	last       uint32 // the last number given

	seed     uint64              // of hashes, so that no client can construct another's prompt; never changes
	caches   []*Cache            // by slot; nil for a free slot
	told     int                 // number of caches
	marks    map[uint64][]uint64 // by mark, a bit set of the slots whose engines hold the prompt up to it
	credited []uint64            // bit set of the slots that the current pick has credited
	adapters map[string]bool     // LoRA adapters that engines have computed blocks with
}

// New returns an empty index.
func New() *Index {
	return &Index{
		young: map[uint64]piece{}, old: map[uint64]piece{}, computed: map[uint32]*Computed{}, marks: map[uint64][]uint64{}, adapters: map[string]bool{},
		seed: rand.Uint64(),
	}
}

type piece struct {
	by   computers
	mark uint64 // hash of the prompt up to the last block end within the piece (Index.marks), 0 if unknown
}

// The latest comes first; 0 is none.
type computers [maxComputers]uint32

// Place is an engine's place among the candidates of a pick. Each pick writes it, one pick at a time.
type Place struct {
	At    int32
	Round uint64
}

// Computed is what one prefill incarnation has computed.
type Computed struct {
	index   *Index
	cache   *Cache
	current func() bool // false once the incarnation has ended or its engine is gone
	latest  func() bool // the incarnation is the last one read
	number  uint32      // in the index, 0 for none; guarded by index.mu
}

// NewComputed returns an empty Computed for a new incarnation.
func (p *Index) NewComputed(cache *Cache, current, latest func() bool) *Computed {
	return &Computed{index: p, cache: cache, current: current, latest: latest}
}

// Record records that the incarnation computes a prompt, or got it by a hand-back after another one computed it; later
// prompts with this beginning go to either. It does nothing after the incarnation has ended or its engine is gone.
func (c *Computed) Record(chain []uint64) {
	p := c.index
	p.mu.Lock()
	defer p.mu.Unlock()
	if !c.current() {
		return
	}
	if c.number == 0 {
		p.last++
		c.number = p.last
		p.computed[c.number] = c
	}
	for _, hash := range chain {
		known, young := p.piece(hash)
		if young && known.by[0] == c.number {
			continue
		}
		known.by = known.by.first(c.number)
		p.put(hash, known, young)
	}
}

// piece needs p.mu.
func (p *Index) piece(hash uint64) (known piece, young bool) {
	if known, young = p.young[hash]; !young {
		known = p.old[hash]
	}
	return known, young
}

// put needs p.mu.
func (p *Index) put(hash uint64, known piece, young bool) {
	if !young && len(p.young) >= MaxPieces {
		p.young, p.old = p.old, p.young
		clear(p.young)
	}
	p.young[hash] = known
}

func (c computers) first(number uint32) computers {
	next, at := computers{number}, 1
	for _, other := range c {
		if other != number && other != 0 && at < maxComputers {
			next[at] = other
			at++
		}
	}
	return next
}

// Drop removes the incarnation's number. An engine that comes back gets another one.
func (c *Computed) Drop() {
	p := c.index
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.number != 0 {
		delete(p.computed, c.number)
		c.number = 0
	}
}

// markEvery is the distance of marks in tokens, half a piece of text. A mark is the end of the first block that reaches
// a multiple of markEvery. Picks know which engines hold a prompt up to its marks.
const markEvery = TokensPerPiece / 2

// marks reports whether a block of size tokens that ends at token end is a mark.
func marks(end, size int) bool { return size > 0 && end/markEvery > (end-size)/markEvery }

// mix is splitmix64 (Steele et al., "Fast splittable pseudorandom number generators", OOPSLA 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// prefixHash does not depend on where blocks end, so engines with different block sizes compare. 0 means no hash; a
// real hash is 0 once in 2^64.
func prefixHash(before uint64, tokens []uint32) uint64 {
	for _, token := range tokens {
		before = mix(before ^ uint64(token) + 1)
	}
	return before
}

func mixText(before uint64, text string) uint64 {
	for i := range len(text) {
		before = mix(before ^ uint64(text[i]) + 1)
	}
	return mix(before ^ uint64(len(text)))
}
