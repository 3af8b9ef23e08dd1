package request

import (
	"sync"

	"carryover/upstream/body"
)

// How many bytes of text a token stands for: what is believed of a model that is not known, and
// between which bounds what is learnt of one stays. English has about four
// (vllm-project/production-stack#890), Chinese less than three, code three and a half.
const (
	UsualRatio            = 4 // of a model that is not known
	leastRatio, mostRatio = 1, 16
	templateShare         = 0.8     // of leastRatio: what a template adds to a prompt is less than a fifth of it
	ratioStep             = 8       // an answer moves the ratio by an eighth of the way
	learnFrom             = 1 << 10 // bytes; in shorter prompts the template's own tokens weigh too much
	maxRatios             = 1024    // models
)

// Ratios are how many bytes of text a token stands for, by the name that the engines serve a model under. Only prompts that engines
// have answered teach something, so that no client invents models or counts. What a client can do is send text that is unlike
// that of others, within the bounds: that shifts where prompts are computed and nothing else.
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

// Learn takes in what an engine has counted in the prompt of a turn that it has answered.
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
			delete(r.of, other) // whichever comes first: the ratio of a model in use is learnt again within a few turns
		}
	}
	r.of[req.Model] = old + (sample-old)/ratioStep
}

// Uncached estimates how many tokens of the prompt are to be computed where so many of the conversation are held. It is no proof:
// how much of them the request has shows when ids are compared, which is later.
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
		// tail counts where it comes with what is held within a third of the whole; decode has computed by itself what lies between.
		return tail
	}
	return max(rest, tail)
}
