package fleet

import (
	"math"

	"carryover/upstream"
)

// After a hand-back, the conversation's KV is in the prefix cache of one prefill incarnation, with the tokens that
// decode generated. A prefix hint names that incarnation. It counts like a beginning of the prompt that the
// incarnation has computed (package prefixindex), even where the prompt is too short for a chain. It is only a hint:
// engines evict what they like, and policies may pass over an engine that is too busy.

// handedBack marks the candidates that the conversation was handed back to, and subtracts what they need not compute
// from their delay. It needs k.mu.
func (k *Picker) handedBack(hint *Hint) {
	p, prompt := &k.picking, measure(hint)
	for i := range hint.PrefixHints {
		note := &hint.PrefixHints[i]
		e := k.members.Load().named[upstream.RolePrefill][note.Prefill]
		if e == nil || e.seen.place.Round != p.round || !note.counts(e) || k.prefixes.Lacks(e.Cache, prompt.within(hint.Chain, note.Tokens)) {
			continue
		}
		c := &p.candidates[e.seen.place.At]
		c.Holds = max(c.Holds, note.Tokens)
		pieces := prompt.pieces(note.Tokens)
		if pieces <= c.Prefix { // the incarnation has computed all of it itself
			continue
		}
		if c.Delay > 0 {
			known := prompt.spares(float64(c.Prefix) * prompt.perPiece)
			c.Delay -= p.speeds.of(e) * max(prompt.spares(float64(note.Tokens))-known, 0)
		}
		c.Prefix = pieces
	}
}

// counts reports whether the hint may still hold: the engine runs that incarnation, and legs that use its prefix cache
// may go to it.
func (n *PrefixHint) counts(e *Engine) bool {
	last := e.seen.last.Load()
	return n.Tokens > 0 && last.Known() && last.id == n.Incarnation && !e.Quarantined()
}

// toCompute returns how many tokens of the turn the picked engine is expected to compute. Tokens that were handed back
// to it do not count; otherwise it would look busy with them, and another conversation's next turn would avoid it. It
// needs k.mu.
func (k *Picker) toCompute(picked *Engine, hint *Hint) int {
	if len(hint.PrefixHints) == 0 || picked.Role != upstream.RolePrefill {
		return hint.Tokens
	}
	prompt := measure(hint)
	return hint.Tokens - int(prompt.spares(float64(k.picking.candidates[picked.seen.place.At].Holds)))
}

// pieces returns how many pieces so many tokens fill. A piece that has only begun counts: what was handed back extends
// beyond the last prompt, so it wins over an engine that has only that prompt.
func (p *prompt) pieces(tokens int) int { return int(math.Ceil(float64(tokens) / p.perPiece)) }

// within returns the pieces that end within so many tokens.
func (p *prompt) within(chain []uint64, tokens int) []uint64 {
	return chain[:int(min(float64(tokens)/p.perPiece, float64(len(chain))))]
}
