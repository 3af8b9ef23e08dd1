package fleet

import (
	"math/bits"
	"slices"

	"carryover/upstream"
)

// Bounds of what is known of prefix caches together.
const (
	// maxMarks bounds the places of prompts that engines hold: some 200 MB with 1,000 engines. What is beyond is not looked for.
	maxMarks = 1 << 20
	// maxAdapters bounds the names of LoRA adapters.
	maxAdapters = 1024
	// marksAtOnce is how many places are noted or forgotten before picks get their turn.
	marksAtOnce = 512
	// maxCredits is how many engines a pick looks at because they tell that they hold a beginning of its prompt: those that hold the
	// most, and of as many as hold the same some others each time. A thousand would take half of a pick's time.
	maxCredits = 256
)

// holders are the engines that hold prompts up to places of theirs. The lock of the prefixes that have it guards it.
type holders struct {
	seed     uint64
	engines  []*Engine           // of which it is known what they hold, by their slot; nil where one was
	told     int                 // how many these are
	marks    map[uint64][]uint64 // by the hash of a prompt up to a place, the slots of those that hold it, a bit each
	credited []uint64            // in the pick that is under way
	adapters map[string]bool     // that engines have computed blocks with
}

// root is where the hashes of prompts begin.
func (p *prefixIndex) root(adapter string) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if adapter != "" && len(p.adapters) < maxAdapters {
		if p.adapters == nil {
			p.adapters = map[string]bool{}
		}
		p.adapters[adapter] = true
	}
	return p.begin(adapter)
}

// begin needs p.mu.
func (p *prefixIndex) begin(adapter string) uint64 {
	if p.seed == 0 {
		p.seed = newSeed()
	}
	return mixText(p.seed, adapter)
}

// forget forgets the blocks of an engine. It has a slot from then on, or none. The caller holds the lock of what the engine holds.
func (p *prefixIndex) forget(e *Engine, blocks map[uint64]cachedBlock, known bool) {
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
		for i, other := range p.engines {
			if other == nil {
				p.engines[i], e.slot = e, i+1
				return
			}
		}
		p.engines = append(p.engines, e)
		e.slot = len(p.engines)
		p.credited = make([]uint64, (len(p.engines)+63)/64)
	case !known && e.slot != 0:
		p.told--
		p.engines[e.slot-1], e.slot = nil, 0
	}
}

// holds notes the places up to which an engine does not hold prompts any more, and then those up to which it does from here on.
func (p *prefixIndex) holds(e *Engine, added, removed []uint64) {
	for marks := range slices.Chunk(removed, marksAtOnce) {
		p.unmark(e, marks)
	}
	for marks := range slices.Chunk(added, marksAtOnce) {
		p.mark(e, marks)
	}
}

func (p *prefixIndex) unmark(e *Engine, marks []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.slot == 0 {
		return
	}
	word, bit := e.slotBit()
	for _, mark := range marks {
		slots := p.marks[mark]
		if word >= len(slots) {
			continue
		}
		slots[word] &^= bit
		for len(slots) > 0 && slots[len(slots)-1] == 0 {
			slots = slots[:len(slots)-1]
		}
		if len(slots) == 0 {
			delete(p.marks, mark)
		}
	}
}

func (p *prefixIndex) mark(e *Engine, marks []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.slot == 0 {
		return
	}
	if p.marks == nil {
		p.marks = map[uint64][]uint64{}
	}
	word, bit := e.slotBit()
	for _, mark := range marks {
		slots, found := p.marks[mark]
		if !found && len(p.marks) >= maxMarks {
			continue
		}
		if word >= len(slots) {
			grown := make([]uint64, word+1)
			copy(grown, slots)
			slots = grown
			p.marks[mark] = slots
		}
		slots[word] |= bit
	}
}

// slotBit is the bit of an engine among those that hold a prompt. It has a slot, and the lock of the prefixes is held.
func (e *Engine) slotBit() (word int, bit uint64) {
	return (e.slot - 1) / 64, uint64(1) << ((e.slot - 1) % 64)
}

// ComputedPrompt is a prompt of which the tokens are known.
type ComputedPrompt struct {
	Chain     []uint64 // as in Hint, of the text that they were made of
	Bytes     int      // of that text
	IDs       []uint32
	BlockSize int // of the engine that computes it, 0 if that is not known
	Model     string
	Salt      string // cache_salt, "" for none
}

// usualBlock is the size of blocks where it is not known: vLLM's default on GPUs.
const usualBlock = 16

// IndexPrompt remembers where the pieces of a prompt's text end among its tokens, so that the next prompt that begins with them is
// looked for in the prefix caches of the engines that tell what they hold: as they are then, with all that was evicted, and all
// that other clients and replicas have had computed.
//
// Text is cut into tokens evenly, which is wrong where its parts are unlike each other, by some hundred tokens in long prompts: a
// place that lies behind a piece is one of this prompt alone. What comes of that is that an engine is taken to hold a piece less.
func (f *Fleet) IndexPrompt(prompt ComputedPrompt) {
	p := &f.prefixes
	p.mu.Lock()
	told, begin := p.told > 0, uint64(0)
	if told {
		adapter := ""
		if p.adapters[prompt.Model] {
			adapter = prompt.Model
		}
		begin = p.begin(adapter)
	}
	p.mu.Unlock()
	if !told || len(prompt.Chain) == 0 || prompt.Bytes <= 0 {
		return
	}
	places := prompt.blockMarks(begin)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, hash := range prompt.Chain {
		mark := places[i]
		if mark == 0 {
			continue
		}
		known, young := p.young[hash]
		if !young {
			known = p.old[hash]
		}
		if !young || known.mark != mark {
			known.mark = mark
			p.put(hash, known, young)
		}
	}
}

// blockMarks returns for each piece the hash of the prompt up to the last place within it, 0 if there is none.
func (p *ComputedPrompt) blockMarks(prefix uint64) []uint64 {
	size := p.BlockSize
	if size <= 0 {
		size = usualBlock
	}
	if p.Salt != "" {
		prefix = mixText(prefix, p.Salt)
	}
	places := make([]uint64, len(p.Chain))
	at, last := 0, uint64(0)
	for i := range places {
		end := min(len(p.IDs), int(int64(len(p.IDs))*int64(i+1)*upstream.ChainPiece/int64(p.Bytes)))
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

// creditHolders credits the engines that hold a prompt up to a place, each once in a pick, until left is used up. It needs p.mu.
func (p *prefixIndex) creditHolders(mark uint64, picking *picking, pieces int, spared float64, left *int) {
	slots := p.marks[mark]
	if len(slots) == 0 || *left == 0 {
		return
	}
	word := int(picking.round % uint64(len(slots)))
	for range slots {
		if fresh := slots[word] &^ p.credited[word]; fresh != 0 {
			p.credited[word] |= fresh
			for ; fresh != 0 && *left > 0; fresh &= fresh - 1 {
				picking.credit(p.engines[word*64+bits.TrailingZeros64(fresh)], pieces, spared)
				*left--
			}
		}
		if word++; word == len(slots) {
			word = 0
		}
	}
}
