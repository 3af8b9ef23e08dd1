package prefixindex

import "sync"

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
	holders
}

// piece is what the index has about a piece of a prompt.
type piece struct {
	by   computers
	mark uint64 // hash of the prompt up to the last block end within the piece (holders.marks); 0 if that is not known
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
func (s *Computed) Record(chain []uint64) {
	p := s.index
	p.mu.Lock()
	defer p.mu.Unlock()
	if !s.current() {
		return
	}
	if s.number == 0 {
		if p.computed == nil {
			p.computed = map[uint32]*Computed{}
		}
		p.last++
		s.number = p.last
		p.computed[s.number] = s
	}
	for _, hash := range chain {
		known, young := p.piece(hash)
		if young && known.by[0] == s.number {
			continue
		}
		known.by = known.by.first(s.number)
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
	if p.young == nil {
		p.young, p.old = map[uint64]piece{}, map[uint64]piece{}
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
func (s *Computed) Drop() {
	p := s.index
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.number != 0 {
		delete(p.computed, s.number)
		s.number = 0
	}
}
