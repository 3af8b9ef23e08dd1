package prefixindex

import (
	"cmp"
	"math/bits"
	"slices"

	"carryover/upstream/body"
)

const (
	// Some 200 MB with 1,000 engines. Further marks are not recorded.
	maxMarks    = 1 << 20
	maxAdapters = 1024
	// marksAtOnce is how many marks change before the lock is released, so that picks get their turn.
	marksAtOnce = 512
	// MaxCredits is how many engines a pick credits with cached blocks: those with the longest beginning first, and
	// among equals different ones in each pick. To credit a thousand would take half of a pick's time.
	MaxCredits = 256
)

// root returns the hash with which an adapter's prompts begin, and records the adapter.
func (p *Index) root(adapter string) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if adapter != "" && len(p.adapters) < maxAdapters {
		p.adapters[adapter] = true
	}
	return mixText(p.seed, adapter)
}

// forget drops an engine's blocks, and gives it a slot if known, else takes its slot away. The caller holds e.mu.
func (p *Index) forget(e *Cache, blocks map[uint64]cachedBlock, known bool) {
	var gone []uint64
	for _, block := range blocks {
		if mark := block.mark(); mark != 0 {
			gone = append(gone, mark)
		}
	}
	p.holds(e, nil, gone)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case known && e.slot == 0:
		p.told++
		free := slices.Index(p.caches, nil)
		if free < 0 {
			free, p.caches = len(p.caches), append(p.caches, nil)
			p.credited = make([]uint64, (len(p.caches)+63)/64)
		}
		p.caches[free], e.slot = e, free+1
	case !known && e.slot != 0:
		p.told--
		p.caches[e.slot-1], e.slot = nil, 0
	}
}

func (p *Index) holds(e *Cache, added, removed []uint64) {
	for marks := range slices.Chunk(removed, marksAtOnce) {
		p.set(e, marks, false)
	}
	for marks := range slices.Chunk(added, marksAtOnce) {
		p.set(e, marks, true)
	}
}

func (p *Index) set(e *Cache, marks []uint64, holds bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.slot == 0 {
		return
	}
	word, bit := e.slotBit()
	for _, mark := range marks {
		slots, found := p.marks[mark]
		switch {
		case holds && (found || len(p.marks) < maxMarks):
			if word >= len(slots) {
				grown := make([]uint64, word+1)
				copy(grown, slots)
				slots = grown
				p.marks[mark] = slots
			}
			slots[word] |= bit
		case !holds && word < len(slots):
			slots[word] &^= bit
			if slices.Max(slots) == 0 {
				delete(p.marks, mark)
			}
		}
	}
}

// slotBit returns the word and the bit of the engine's slot, which must exist. It needs Index.mu.
func (c *Cache) slotBit() (word int, bit uint64) {
	return (c.slot - 1) / 64, uint64(1) << ((c.slot - 1) % 64)
}

// ComputedPrompt is a prompt whose tokens are known.
type ComputedPrompt struct {
	Chain     []uint64 // as in fleet.Hint
	Bytes     int      // of the text
	IDs       []uint32
	BlockSize int // of the engine that computes the prompt, 0 if unknown
	Model     string
	Salt      string // cache_salt, "" for none
}

// UsualBlock replaces an unknown block size: vLLM's default on GPUs.
const UsualBlock = 16

// IndexPrompt records at which token each piece of a prompt ends. Later prompts with these pieces are looked up in the
// caches as they are then, with evictions and with prompts of other clients and replicas.
//
// It assumes the same number of bytes per token everywhere. In long prompts with unlike parts that is wrong by some
// hundred tokens. A mark that falls behind its piece occurs in this prompt only, so an engine then seems to hold one
// piece too few.
func (p *Index) IndexPrompt(prompt ComputedPrompt) {
	p.mu.Lock()
	told, adapter := p.told, ""
	if p.adapters[prompt.Model] {
		adapter = prompt.Model
	}
	p.mu.Unlock()
	if told == 0 || len(prompt.Chain) == 0 || len(prompt.IDs) == 0 || prompt.Bytes <= 0 {
		return
	}
	places := prompt.blockMarks(mixText(p.seed, adapter))
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, hash := range prompt.Chain {
		mark := places[i]
		if mark == 0 {
			continue
		}
		known, young := p.piece(hash)
		if !young || known.mark != mark {
			known.mark = mark
			p.put(hash, known, young)
		}
	}
}

// blockMarks returns, per piece, the hash of the prompt up to the last mark in it, 0 for none.
func (p *ComputedPrompt) blockMarks(prefix uint64) []uint64 {
	size := cmp.Or(max(p.BlockSize, 0), UsualBlock)
	if p.Salt != "" {
		prefix = mixText(prefix, p.Salt)
	}
	places := make([]uint64, len(p.Chain))
	at, last := 0, uint64(0)
	for i := range places {
		end := min(len(p.IDs), int(int64(len(p.IDs))*int64(i+1)*body.ChainPiece/int64(p.Bytes)))
		for ; at+size <= end; at += size {
			prefix = prefixHash(prefix, p.IDs[at:at+size])
			if marks(at+size, size) {
				last = prefix
			}
		}
		places[i] = last
	}
	return places
}

// creditHolders credits the engines that hold a prompt up to a mark, each once per pick, until left is 0. It needs
// p.mu.
func (p *Index) creditHolders(mark, round uint64, credits Credits, pieces int, left *int) {
	slots := p.marks[mark]
	if len(slots) == 0 || *left == 0 {
		return
	}
	word := int(round % uint64(len(slots)))
	for range slots {
		if fresh := slots[word] &^ p.credited[word]; fresh != 0 {
			p.credited[word] |= fresh
			for ; fresh != 0 && *left > 0; fresh &= fresh - 1 {
				credits.Credit(p.caches[word*64+bits.TrailingZeros64(fresh)].place, pieces)
				*left--
			}
		}
		word = (word + 1) % len(slots)
	}
}

// TokensPerPiece is an estimate.
const TokensPerPiece = body.ChainPiece / 4

// Credits learns which engines need not compute a beginning of a prompt.
type Credits interface {
	// Credit says that an engine has this many pieces. The first call for an engine counts; it has the most pieces.
	Credit(place *Place, pieces int)
}

// Find tells pick number round which engines have which beginnings of a prompt: by their blocks if known, else by what
// they have computed.
func (p *Index) Find(chain []uint64, round uint64, credits Credits) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.computed) == 0 && p.told == 0 {
		return
	}
	clear(p.credited)
	left := MaxCredits
	var last piece
	for i := len(chain) - 1; i >= 0; i-- { // the longest beginning first
		known, _ := p.piece(chain[i])
		if known == last {
			continue
		}
		if known.mark != last.mark {
			p.creditHolders(known.mark, round, credits, i+1, &left)
		}
		same := known.by == last.by && (known.mark != 0 || last.mark == 0) // a known mark changes which incarnations are skipped
		last = known
		if same {
			continue
		}
		for _, number := range known.by {
			computed := p.computed[number]
			if computed == nil || !computed.latest() || known.mark != 0 && computed.cache.slot != 0 {
				continue
			}
			credits.Credit(computed.cache.place, i+1)
		}
	}
}

// Lacks reports whether an engine with known blocks lacks the last piece that has a mark.
func (p *Index) Lacks(e *Cache, pieces []uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.slot == 0 {
		return false
	}
	for i := len(pieces) - 1; i >= 0; i-- {
		if known, _ := p.piece(pieces[i]); known.mark != 0 {
			slots := p.marks[known.mark]
			word, bit := e.slotBit()
			return word >= len(slots) || slots[word]&bit == 0
		}
	}
	return false
}
