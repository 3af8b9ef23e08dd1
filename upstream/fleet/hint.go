package fleet

import (
	"carryover/upstream/body"
	"carryover/upstream/fleet/prefixindex"
)

// Hint is what a pick knows of a turn.
type Hint struct {
	Key              string       // equal for all turns of a conversation, "" for none
	Holds            []Holding    // decode engines that hold the conversation's KV
	PrefixHints      []PrefixHint // prefill engines that the conversation was handed back to
	Model            string       // only engines that may serve it are picked; "" allows all
	AllowQuarantined bool         // quarantined engines may be picked too
	// Tokens is how many prompt tokens prefill is expected to compute if none is in its prefix cache.
	Tokens int
	// Chain has one hash for each piece of the prompt's beginning, over all text up to the piece's end.
	Chain []uint64
}

// Holding says that an incarnation of a decode engine holds KV of the conversation.
type Holding struct {
	Decode, Incarnation string // the instance's name, and the incarnation's id
	Tokens              int
}

// PrefixHint says that the conversation's KV was handed back to an incarnation of a prefill engine: that many tokens
// of its beginning are in the prefix cache there, unless they were evicted.
type PrefixHint struct {
	Prefill, Incarnation string // the instance's name, and the incarnation's id
	Tokens               int
}

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

// spares returns how many tokens fewer an engine computes that has so many tokens in its prefix cache. It always computes
// at least one.
func (p *prompt) spares(cached float64) float64 { return max(p.ours-max(p.whole-cached, 1), 0) }
