package fleet

import (
	"sync"

	"carryover/upstream"
)

// Bounds of what is remembered of prompts. A generation that is full becomes the old one, and what it is not asked for is
// forgotten with it: both take some 11 MB. Four starts per piece are enough for a beginning that is common to all
// conversations: it spreads over more engines as those are busy, and each remembers the newest of them.
const (
	maxPieces    = 1 << 16
	maxComputers = 4
)

// prefixIndex is which prefill incarnations have computed which pieces of prompts, by their hashes (upstream.Request.PromptChain), so that a
// prompt goes where its beginning is in the prefix cache. It is a hint: engines evict what they like. Pieces name incarnations by
// numbers, and an incarnation that is over loses its number, so that nothing of it is found or kept alive.
//
// Of engines that publish KV events it is known what they hold, and that is what counts for prompts whose tokens were known before
// (Fleet.Remember). What was sent to them counts for the others.
type prefixIndex struct {
	mu           sync.Mutex // guards the rest; no other lock is taken under it
	young, old   map[uint64]piece
	incarnations map[uint32]*Incarnation
	last         uint32 // number that was given
	holders
}

// piece is what is remembered of a piece of prompts.
type piece struct {
	by   computers
	mark uint64 // a place of the prompt at its end, or before it (holders.marks); 0 if that is not known
}

// computers are the numbers of incarnations, that which computed a piece last first; 0 is none.
type computers [maxComputers]uint32

// record remembers that a prefill incarnation computes a prompt: nothing of one that is over, or whose engine is gone.
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

// Computed remembers that the prefill incarnation has the prompt of a chain in its prefix cache other than by a turn that was sent to it
// with this chain: by a hand-back of what another incarnation has computed. The next prompt that begins so is sent to either.
// Nothing is remembered of an incarnation that is not known, or over.
func (s *Incarnation) Computed(chain []uint64) {
	if s.Known() {
		s.engine.fleet.prefixes.record(s, chain)
	}
}

// put remembers a piece. It needs p.mu.
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

// first returns the numbers with one at their beginning. The last one goes if there is no room.
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

// drop forgets an incarnation. One whose engine comes back gets another number.
func (p *prefixIndex) drop(s *Incarnation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.number != 0 {
		delete(p.incarnations, s.number)
		s.number = 0
	}
}

// prefix marks the candidates whose incarnation has computed a beginning of the prompt, and takes what they need not compute again out
// of their delay. It needs f.mu.
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
	for i := len(hint.Chain) - 1; i >= 0; i-- { // the longest first
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
		same := known.by == last.by && (known.mark != 0 || last.mark == 0) // those that tell what they hold are left out in one case
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

// credit tells the policy that an engine, if it is a candidate, need not compute so many pieces, unless it is told of more.
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

// prompt is how much of a turn's prompt there is to compute, in tokens.
type prompt struct {
	ours, whole float64 // those that prefill computes, and these together with what it reads from decode
	perPiece    float64 // of the chain
}

// tokensPerPiece is how many tokens a piece has about.
const tokensPerPiece = upstream.ChainPiece / 4

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
	case upstream.MaxChain: // the prompt may go on for long
		p.perPiece = min(p.whole/upstream.MaxChain, tokensPerPiece)
	default:
		p.perPiece = p.whole / float64(len(hint.Chain))
	}
	return p
}

// spared returns how many tokens less an engine computes that has so many pieces in its cache. One it computes in any case.
func (p *prompt) spared(pieces int) float64 { return p.beyond(float64(pieces) * p.perPiece) }

// spares is spared for so many tokens.
func (p *prompt) spares(tokens int) float64 { return p.beyond(float64(tokens)) }

func (p *prompt) beyond(cached float64) float64 { return max(p.ours-max(p.whole-cached, 1), 0) }
