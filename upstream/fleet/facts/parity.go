package facts

import (
	"crypto/sha256"
	"sync"
)

// Parity is whether /tokenize gives the same ids as the completion endpoint of a prefill incarnation. They differ where a
// template or renderer sees something that /tokenize is not told.
type Parity struct {
	known bool // of an incarnation that is not known, nothing is recorded

	mu       sync.Mutex // guards the rest
	findings map[[sha256.Size]byte]Finding
}

// Of says whether the ids are the same for requests with these features: Yes if that was seen, No if a difference was
// seen once. features is [body.Request.FeatureSet].
func (p *Parity) Of(model, features string) Finding {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.findings[digest(model, features)]
}

// Equal returns how many shapes of requests, over all models, were seen with the same ids.
func (p *Parity) Equal() (shapes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, finding := range p.findings {
		if finding == Yes {
			shapes++
		}
	}
	return shapes
}

// Learn records a comparison of /tokenize's ids with those that prefill rendered itself, and returns what is
// known now. One difference decides for good: equal ids before or after it were luck.
func (p *Parity) Learn(model, features string, equal bool) Finding {
	if !p.known {
		return Unknown
	}
	key := digest(model, features)
	p.mu.Lock()
	defer p.mu.Unlock()
	finding := p.findings[key]
	switch {
	case !equal:
		finding = No
	case finding == Unknown:
		finding = Yes
	}
	if p.findings == nil || finding != p.findings[key] && len(p.findings) >= maxLearnt {
		p.findings = map[[sha256.Size]byte]Finding{}
	}
	p.findings[key] = finding
	return finding
}
