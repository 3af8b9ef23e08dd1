package prefixindex

import "carryover/upstream/body"

// TokensPerPiece is roughly how many tokens a piece has.
const TokensPerPiece = body.ChainPiece / 4

// Credits is told which engines need not compute a beginning of a prompt.
type Credits interface {
	// Credit says that the engine at a place has so many pieces. The first call for an engine counts, which is the one
	// with the most pieces.
	Credit(place *Place, pieces int)
}

// Find tells a pick which engines have which beginnings of a prompt in their prefix caches, by what they hold where that
// is known and else by what they have computed. round is the number of the pick.
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

// Lacks reports whether an engine whose cached blocks are known lacks the last of the pieces whose marks are known.
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

// Size is how much an Index remembers.
type Size struct {
	Pieces   int // of both generations
	Computed int // incarnations that have computed any
	Caches   int // engines whose cached blocks are known
	Marks    int
}

// Size returns how much the index remembers.
func (p *Index) Size() Size {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Size{Pieces: len(p.young) + len(p.old), Computed: len(p.computed), Caches: p.told, Marks: len(p.marks)}
}
