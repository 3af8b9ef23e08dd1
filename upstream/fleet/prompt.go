package fleet

import (
	"carryover/upstream/body"
	"carryover/upstream/fleet/prefixindex"
)

// prompt is how much there is to compute of a turn's prompt, in tokens.
type prompt struct {
	ours, whole float64 // what prefill computes; that plus what it reads from decode
	perPiece    float64 // tokens per piece of the chain
}

func measure(hint *Hint) (p prompt) {
	held := 0
	for i := range hint.Holds {
		held = max(held, hint.Holds[i].Tokens)
	}
	p.ours = float64(max(hint.Tokens, 1))
	p.whole = p.ours + float64(held)
	switch len(hint.Chain) {
	case 0:
		p.perPiece = prefixindex.TokensPerPiece
	case body.MaxChain: // the prompt may be longer than the chain
		p.perPiece = min(p.whole/body.MaxChain, prefixindex.TokensPerPiece)
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
