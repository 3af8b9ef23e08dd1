// Package prefixindex says which prefill engines hold which beginnings of prompts, so that a prompt goes where its
// beginning is in the prefix cache. Beginnings are told apart by hashes of pieces of text. Which an engine has is known by
// what was sent to it (index.go), or, of an engine that publishes KV events, by what it holds (cache.go, holders.go).
//
// It promises that
//
//   - the index is bounded and refers to no incarnation that has ended (index.go, holders.go);
//   - of an engine that publishes KV events the cached blocks are known completely or not at all (cache.go);
//   - hashes are seeded, so that no client can construct prompts that count as those of others (holders.go);
//   - events of one engine don't keep picks waiting for all of the others (holders.go).
package prefixindex

import (
	"math/rand/v2"
	"sync"
)

// Bounds of the prefix index. It has two generations: when the young one is full, it becomes the old one, and pieces
// of the old one that no prompt asked for meanwhile are dropped. Both together take some 11 MB. Four incarnations per
// piece suffice for a beginning that all conversations share: as engines get busy it spreads over more of them, and
// the newest four are kept.
const (
	MaxPieces    = 1 << 16
	maxComputers = 4
)

// Index says which prefill incarnations have computed which pieces of prompts, by the pieces' hashes
// (body.Prompt.Chain), so that a prompt goes where its beginning is in the prefix cache. It is a hint:
// engines evict what they like. Pieces refer to incarnations by numbers, and an incarnation that ends loses its
// number, so that nothing of it is found or kept alive.
//
// Of engines that publish KV events the cached blocks are known, and count for prompts whose tokens were seen before
// ([Index.IndexPrompt]). For all other engines and prompts, what was sent to an engine counts.
type Index struct {
	mu         sync.Mutex // guards the rest; it is the innermost lock
	young, old map[uint64]piece
	computed   map[uint32]*Computed
	last       uint32 // the number that was given last

	// Which engines hold prompts up to which marks (holders.go).
	seed     uint64              // of hashes, so that no client can construct prompts that count as those of others; it never changes
	caches   []*Cache            // by slot, the engines whose cached blocks are known; nil for a free slot
	told     int                 // how many engines that are
	marks    map[uint64][]uint64 // by mark, a bit set of the slots whose engines hold the prompt up to there
	credited []uint64            // a bit set of the slots that the current pick has credited
	adapters map[string]bool     // LoRA adapters that engines have computed blocks with
}

// New returns an index of which nothing is known.
func New() *Index {
	return &Index{
		young: map[uint64]piece{}, old: map[uint64]piece{}, computed: map[uint32]*Computed{}, marks: map[uint64][]uint64{}, adapters: map[string]bool{},
		seed: rand.Uint64(),
	}
}

// piece is what the index has about a piece of a prompt.
type piece struct {
	by   computers
	mark uint64 // hash of the prompt up to the last block end within the piece (Index.marks); 0 if that is not known
}

// computers are numbers of incarnations, the latest to compute the piece first; 0 is none.
type computers [maxComputers]uint32

// Place is an engine's place among the candidates of a pick. The caller writes it for each pick, and no pick runs beside
// another.
type Place struct {
	At    int32
	Round uint64 // the number of the pick
}

// Computed is what one incarnation of a prefill engine has computed.
type Computed struct {
	index   *Index
	cache   *Cache      // of the engine
	current func() bool // whether the incarnation has not ended, and its engine is not gone
	latest  func() bool // whether it is the one that its engine was read as last
	number  uint32      // in the index, 0 if it has none; index.mu guards it
}

// NewComputed returns what a new incarnation of an engine with that cache has computed: nothing.
func (p *Index) NewComputed(cache *Cache, current, latest func() bool) *Computed {
	return &Computed{index: p, cache: cache, current: current, latest: latest}
}

// Record records that the incarnation computes a prompt, or has it in its prefix cache by a hand-back of what another
// one computed: the next prompt that begins so is sent to either. It does nothing for an incarnation that has ended or
// whose engine is gone.
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

// piece returns what is known of a piece, and whether it is in the young generation. It needs p.mu.
func (p *Index) piece(hash uint64) (known piece, young bool) {
	if known, young = p.young[hash]; !young {
		known = p.old[hash]
	}
	return known, young
}

// put stores a piece in the young generation. It needs p.mu.
func (p *Index) put(hash uint64, known piece, young bool) {
	if !young && len(p.young) >= MaxPieces {
		p.young, p.old = p.old, p.young
		clear(p.young)
	}
	p.young[hash] = known
}

// first returns the numbers with number in front; the last one is dropped if there are too many.
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

// Drop takes the number from the incarnation: it has ended, or its engine is gone. If the engine comes back, it gets
// another one.
func (c *Computed) Drop() {
	p := c.index
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.number != 0 {
		delete(p.computed, c.number)
		c.number = 0
	}
}

// markEvery is the distance of marks in tokens, half of what a piece of text has. A mark is the end of the first block
// that reaches or passes a multiple of markEvery; picks know which engines hold a prompt up to its marks.
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

// prefixHash extends the hash before by tokens. It does not depend on where blocks end, so engines with different
// block sizes can be compared. 0 means no hash; a real hash is 0 once in 2^64.
func prefixHash(before uint64, tokens []uint32) uint64 {
	for _, token := range tokens {
		before = mix(before ^ uint64(token) + 1)
	}
	return before
}

// mixText extends the hash before by a text.
func mixText(before uint64, text string) uint64 {
	for i := range len(text) {
		before = mix(before ^ uint64(text[i]) + 1)
	}
	return mix(before ^ uint64(len(text)))
}
