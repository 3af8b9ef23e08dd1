package facts

import (
	"crypto/sha256"
	"sync"

	"carryover/account"
)

// Parity learns whether /tokenize gives the same ids as the completion endpoint of a prefill incarnation. They differ
// where a template or renderer sees something that /tokenize does not get.
type Parity struct {
	known bool // an unknown incarnation learns nothing

	mu sync.Mutex // guards the rest
	// Lessons are given once, so taught has its own bound: no client's shapes displace it.
	taught, seen *findings
}

type findings = account.Map[[sha256.Size]byte, Finding]

func newFindings() *findings { return account.NewMap[[sha256.Size]byte, Finding](maxLearnt) }

// Of says whether the ids are equal for requests with these features ([body.Request.FeatureSet]): Yes if that was seen,
// No after one difference.
func (p *Parity) Of(model, features string) Finding {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of(digest(model, features))
}

// of needs p.mu.
func (p *Parity) of(key [sha256.Size]byte) Finding {
	if taught, known := p.taught.Get(key); known {
		return taught
	}
	seen, _ := p.seen.Get(key)
	return seen
}

// Equal returns how many shapes, over all models, have equal ids.
func (p *Parity) Equal() (shapes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, all := range [...]*findings{p.taught, p.seen} {
		for _, finding := range all.All() {
			if finding == Yes {
				shapes++
			}
		}
	}
	return shapes
}

// Learn records whether /tokenize and prefill agreed on the ids of an account's request, and returns the finding. One difference decides
// for good: equal ids before or after it were luck.
func (p *Parity) Learn(of, model, features string, equal bool) Finding {
	return p.learn(p.seen, of, digest(model, features), equal)
}

func (p *Parity) teach(model, features string, equal bool) Finding {
	return p.learn(p.taught, model, digest(model, features), equal)
}

func (p *Parity) learn(into *findings, of string, key [sha256.Size]byte, equal bool) Finding {
	if !p.known {
		return Unknown
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	finding := p.of(key)
	switch {
	case !equal:
		finding = No
	case finding == Unknown:
		finding = Yes
	}
	if _, taught := p.taught.Get(key); taught {
		into = p.taught
	}
	into.Put(of, key, finding)
	return finding
}
