package fleet

import (
	"math"

	"carryover/upstream"
)

// A conversation whose KV was handed back is in the prefix cache of one start of prefill, with what decode generated. A note tells of
// it, and it weighs as a beginning of the prompt does that this start has computed (prefixindex.go), also where the prompt is too short
// for a chain or none was made. It is a hint: engines evict what they like, and a favourite that is too busy gives way.

// handedBack marks the candidates to whose start the conversation was handed back, and takes what they need not compute again out of
// their delay. It needs f.mu.
func (f *Fleet) handedBack(hint *Hint) {
	p, prompt := &f.picking, measure(hint)
	for i := range hint.PrefixHints {
		note := &hint.PrefixHints[i]
		e := f.named[upstream.RolePrefill][note.Prefill]
		if e == nil || e.round != p.round || !note.counts(e) || f.prefixes.lacks(e, prompt.within(hint.Chain, note.Tokens)) {
			continue
		}
		c := &p.candidates[e.at]
		c.Holds = max(c.Holds, note.Tokens)
		pieces := prompt.pieces(note.Tokens)
		if pieces <= c.Prefix { // all of it is in what the start has computed
			continue
		}
		if c.Delay > 0 {
			known := 0.0
			if c.Prefix > 0 {
				known = prompt.spared(c.Prefix)
			}
			c.Delay -= p.speeds.of(e) * max(prompt.spares(note.Tokens)-known, 0)
		}
		c.Prefix = pieces
	}
}

// counts reports whether what the note tells may still be so: that start was read last, and legs that find what it has in its cache
// may go to it.
func (n *PrefixHint) counts(e *Engine) bool {
	last := e.seen.last.Load()
	return n.Tokens > 0 && last.Known() && last.id == n.Incarnation && !e.Quarantined()
}

// toCompute returns how many tokens of the turn the engine that was picked for it is expected to compute. One to which the
// conversation was handed back would else look busy with what it has, and the next turn of another conversation there would go
// elsewhere. It needs f.mu.
func (f *Fleet) toCompute(picked *Engine, hint *Hint) int {
	if len(hint.PrefixHints) == 0 || picked.Role != upstream.RolePrefill {
		return hint.Tokens
	}
	prompt := measure(hint)
	return hint.Tokens - int(prompt.spares(f.picking.candidates[picked.at].Holds))
}

// pieces returns how many pieces so many tokens are. One that has begun counts: what was handed back goes on behind the last prompt,
// of which others may have as many.
func (p *prompt) pieces(tokens int) int { return int(math.Ceil(float64(tokens) / p.perPiece)) }

// within returns the pieces that end within so many tokens.
func (p *prompt) within(chain []uint64, tokens int) []uint64 {
	return chain[:int(min(float64(tokens)/p.perPiece, float64(len(chain))))]
}

// lacks reports whether an engine that tells what it holds does not hold the last of the pieces of which the tokens are known.
func (p *prefixIndex) lacks(e *Engine, pieces []uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.slot == 0 {
		return false
	}
	for i := len(pieces) - 1; i >= 0; i-- {
		known, young := p.young[pieces[i]]
		if !young {
			known = p.old[pieces[i]]
		}
		if known.mark != 0 {
			slots := p.marks[known.mark]
			word, bit := e.slotBit()
			return word >= len(slots) || slots[word]&bit == 0
		}
	}
	return false
}
