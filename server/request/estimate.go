package request

import (
	"sync"

	"carryover/upstream/body"
)

// The bytes of text per token: the usual value for an unknown model, and the bounds of learnt ones. English has about four
// (vllm-project/production-stack#890), Chinese less than three, code three and a half.
const (
	UsualRatio            = 4 // of an unknown model
	leastRatio, mostRatio = 1, 16
	templateShare         = 0.8     // of leastRatio: a template adds less than a fifth to a prompt
	ratioStep             = 8       // an answer moves the ratio by an eighth of the way
	learnFrom             = 1 << 10 // bytes; in shorter prompts the template's own tokens weigh too much
	maxRatios             = 1024    // models
)

// Ratios are the bytes of text per token, by the engines' name of the model. Only answered prompts count, so that no client invents
// models or counts. A client can send unusual text within the bounds; that shifts where prompts are computed and nothing else.
type Ratios struct {
	mu sync.Mutex // guards of
	of map[string]float64
}

// NewRatios returns ratios that know no model.
func NewRatios() *Ratios { return &Ratios{of: map[string]float64{}} }

// Get returns the bytes of a token.
func (r *Ratios) Get(model string) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ratio, known := r.of[model]; known {
		return ratio
	}
	return UsualRatio
}

// Learn takes an engine's count of the prompt of an answered turn.
func (r *Ratios) Learn(req *Request, tokens int) {
	if !req.Length.Plain || req.Length.Whole.Bytes < learnFrom || tokens <= 0 {
		return
	}
	sample := float64(req.Length.Whole.Bytes) / float64(tokens)
	if sample < leastRatio*templateShare || sample > mostRatio {
		return // the engine counted another text, or only a part of this one
	}
	sample = max(sample, leastRatio) // of a tokenizer that knows bytes only, with the template's own tokens
	r.mu.Lock()
	defer r.mu.Unlock()
	old, known := r.of[req.Model]
	if !known {
		old = UsualRatio
		for other := range r.of {
			if len(r.of) < maxRatios {
				break
			}
			delete(r.of, other) // any one: the ratio of a model in use is learnt again within a few turns
		}
	}
	r.of[req.Model] = old + (sample-old)/ratioStep
}

// Uncached estimates how many tokens of the prompt must be computed if an engine holds this number of the conversation's. It is no
// proof: ids are compared later.
func Uncached(length body.PromptLength, bytesPerToken float64, tokens int) int {
	whole, tail := length.Whole.Tokens(bytesPerToken), length.Tail.Tokens(bytesPerToken)
	rest, near := whole-tokens, 3*max(tokens+tail, whole) <= 4*min(tokens+tail, whole)
	switch {
	case tokens == 0, tokens > 2*whole, rest < 0 && length.Whole.IDs > 0: // the request has another beginning
		return whole
	case !length.Answered:
		return max(rest, 0)
	case near:
		// An estimate is wrong by a share of the whole, and in a long conversation that is more than a follow-up has. So only the
		// tail counts if tail and held tokens make the whole within a third; decode has computed the rest by itself.
		return tail
	}
	return max(rest, tail)
}
