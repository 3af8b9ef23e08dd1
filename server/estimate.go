package server

import "sync"

// How many bytes of text a token stands for: what is believed of a model that is not known, and
// between which bounds what is learnt of one stays. English has about four
// (vllm-project/production-stack#890), Chinese less than three, code three and a half.
const (
	usualRatio            = 4
	leastRatio, mostRatio = 1, 16
	templateShare         = 0.8     // of leastRatio: what a template adds to a prompt is less than a fifth of it
	ratioStep             = 8       // an answer moves the ratio by an eighth of the way
	learnFrom             = 1 << 10 // bytes; in shorter prompts the template's own tokens weigh too much
	maxRatios             = 1024    // models
)

// ratios are how many bytes of text a token stands for, by the name that the engines serve a model under. Only prompts that engines
// have answered teach something, so that no client invents models or counts. What a client can do is send text that is unlike
// that of others, within the bounds: that shifts where prompts are computed and nothing else.
type ratios struct {
	mu sync.Mutex // guards of
	of map[string]float64
}

func newRatios() *ratios { return &ratios{of: map[string]float64{}} }

// get returns the bytes of a token.
func (r *ratios) get(model string) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ratio, known := r.of[model]; known {
		return ratio
	}
	return usualRatio
}

// learn takes in what an engine has counted in the prompt of a turn that it has answered.
func (r *ratios) learn(t *turn, tokens int) {
	if !t.length.Plain || t.length.Whole.Bytes < learnFrom || tokens <= 0 {
		return
	}
	sample := float64(t.length.Whole.Bytes) / float64(tokens)
	if sample < leastRatio*templateShare || sample > mostRatio {
		return // the engine counted another text, or only a part of this one
	}
	sample = max(sample, leastRatio) // of a tokenizer that knows bytes only, with the template's own tokens
	r.mu.Lock()
	defer r.mu.Unlock()
	old, known := r.of[t.model]
	if !known {
		old = usualRatio
		for other := range r.of {
			if len(r.of) < maxRatios {
				break
			}
			delete(r.of, other) // whichever comes first: the ratio of a model in use is learnt again within a few turns
		}
	}
	r.of[t.model] = old + (sample-old)/ratioStep
}
