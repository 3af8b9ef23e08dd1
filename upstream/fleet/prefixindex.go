package fleet

import (
	"sync"

	"carryover/upstream/body"
)

// Bounds of the prefix index. It has two generations: when the young one is full, it becomes the old one, and pieces
// of the old one that no prompt asked for meanwhile are dropped. Both together take some 11 MB. Four incarnations per
// piece suffice for a beginning that all conversations share: as engines get busy it spreads over more of them, and
// the newest four are kept.
const (
	maxPieces    = 1 << 16
	maxComputers = 4
)

// prefixIndex says which prefill incarnations have computed which pieces of prompts, by the pieces' hashes
// (body.Request.PromptChain), so that a prompt goes where its beginning is in the prefix cache. It is a hint:
// engines evict what they like. Pieces refer to incarnations by numbers, and an incarnation that ends loses its
// number, so that nothing of it is found or kept alive.
//
// Of engines that publish KV events the cached blocks are known, and count for prompts whose tokens were seen before
// (Fleet.IndexPrompt). For all other engines and prompts, what was sent to an engine counts.
type prefixIndex struct {
	mu           sync.Mutex // guards the rest; it is the innermost lock
	young, old   map[uint64]piece
	incarnations map[uint32]*Incarnation
	last         uint32 // the number that was given last
	holders
}

// piece is what the index has about a piece of a prompt.
type piece struct {
	by   computers
	mark uint64 // hash of the prompt up to the last block end within the piece (holders.marks); 0 if that is not known
}

// computers are numbers of incarnations, the latest to compute the piece first; 0 is none.
type computers [maxComputers]uint32

// record records that a prefill incarnation computes a prompt. It does nothing for an incarnation that has ended or
// whose engine is gone.
func (p *prefixIndex) record(s *Incarnation, chain []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !s.current() {
		return
	}
	if s.number == 0 {
		if p.incarnations == nil {
			p.incarnations = map[uint32]*Incarnation{}
		}
		p.last++
		s.number = p.last
		p.incarnations[s.number] = s
	}
	for _, hash := range chain {
		known, young := p.young[hash]
		if young && known.by[0] == s.number {
			continue
		}
		if !young {
			known = p.old[hash]
		}
		known.by = known.by.first(s.number)
		p.put(hash, known, young)
	}
}

// Computed records that the prefill incarnation has a prompt in its prefix cache without having been sent it: by a
// hand-back of what another incarnation computed. The next prompt that begins so is sent to either of the two. It does
// nothing for an incarnation that is not known or has ended.
func (s *Incarnation) Computed(chain []uint64) {
	if s.Known() {
		s.engine.fleet.prefixes.record(s, chain)
	}
}

// put stores a piece in the young generation. It needs p.mu.
func (p *prefixIndex) put(hash uint64, known piece, young bool) {
	if !young && len(p.young) >= maxPieces {
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

// drop takes the number from an incarnation. If its engine comes back, it gets another one.
func (p *prefixIndex) drop(s *Incarnation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.number != 0 {
		delete(p.incarnations, s.number)
		s.number = 0
	}
}

// prefix marks the candidates whose incarnation has computed a beginning of the prompt, and subtracts what they need
// not compute from their delay. It needs f.mu.
func (f *Fleet) prefix(hint *Hint) {
	p, picking := &f.prefixes, &f.picking
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.incarnations) == 0 && p.told == 0 {
		return
	}
	prompt := measure(hint)
	clear(p.credited)
	left := maxCredits
	var last piece
	for i := len(hint.Chain) - 1; i >= 0; i-- { // the longest beginning first
		known, found := p.young[hint.Chain[i]]
		if !found {
			known = p.old[hint.Chain[i]]
		}
		if known == last {
			continue
		}
		pieces, spared := i+1, prompt.spared(i+1)
		if known.mark != last.mark {
			p.creditHolders(known.mark, picking, pieces, spared, &left)
		}
		same := known.by == last.by && (known.mark != 0 || last.mark == 0) // a known mark changes which incarnations are skipped
		last = known
		if same {
			continue
		}
		for _, number := range known.by {
			incarnation := p.incarnations[number]
			if incarnation == nil || incarnation.engine.seen.last.Load() != incarnation || known.mark != 0 && incarnation.engine.slot != 0 {
				continue
			}
			picking.credit(incarnation.engine, pieces, spared)
		}
	}
}

// credit tells the policy that an engine, if it is a candidate, need not compute so many pieces. The first call for an
// engine counts, which is the one with the most pieces.
func (p *picking) credit(e *Engine, pieces int, spared float64) {
	if e.round != p.round {
		return
	}
	if c := &p.candidates[e.at]; c.Prefix == 0 {
		c.Prefix = pieces
		if c.Delay > 0 {
			c.Delay -= p.speeds.of(e) * spared
		}
	}
}

// prompt is how much there is to compute of a turn's prompt, in tokens.
type prompt struct {
	ours, whole float64 // what prefill computes; that plus what it reads from decode
	perPiece    float64 // tokens per piece of the chain
}

// tokensPerPiece is roughly how many tokens a piece has.
const tokensPerPiece = body.ChainPiece / 4

func measure(hint *Hint) (p prompt) {
	held := 0
	for i := range hint.Holds {
		held = max(held, hint.Holds[i].Tokens)
	}
	p.ours = float64(max(hint.Tokens, 1))
	p.whole = p.ours + float64(held)
	switch len(hint.Chain) {
	case 0:
		p.perPiece = tokensPerPiece
	case body.MaxChain: // the prompt may be longer than the chain
		p.perPiece = min(p.whole/body.MaxChain, tokensPerPiece)
	default:
		p.perPiece = p.whole / float64(len(hint.Chain))
	}
	return p
}

// spared returns how many tokens fewer an engine computes that has so many pieces in its prefix cache. It always
// computes at least one.
func (p *prompt) spared(pieces int) float64 { return p.beyond(float64(pieces) * p.perPiece) }

// spares is spared for a number of tokens.
func (p *prompt) spares(tokens int) float64 { return p.beyond(float64(tokens)) }

func (p *prompt) beyond(cached float64) float64 { return max(p.ours-max(p.whole-cached, 1), 0) }
