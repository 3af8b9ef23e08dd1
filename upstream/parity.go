package upstream

import "sync"

// What [Parity.Known] says of a feature set besides Unknown.
const (
	// Trusted: the ids that prefill rendered by itself were those of /tokenize.
	Trusted = Yes
	// Barred: they differed once.
	Barred = No
)

// maxRemembered bounds what is remembered of instances, and of the feature sets
// seen on them. A deployment has hundreds; a client that invents more only makes
// them be learnt anew.
const maxRemembered = 4096

// Parity remembers for which shapes of requests /tokenize gives the ids that the
// completion endpoint of the same prefill instance renders. Where it does not,
// a template or renderer sees something that /tokenize is not told.
type Parity struct {
	mu    sync.Mutex // guards known
	known map[parityKey]Finding
}

type parityKey struct{ instance, incarnation, model, features string }

// NewParity returns an empty memory.
func NewParity() *Parity { return &Parity{known: map[parityKey]Finding{}} }

// Known returns Trusted, Barred or Unknown for a feature set ([Request.FeatureSet])
// of a model on one start of a prefill instance.
func (p *Parity) Known(instance *Instance, incarnation, model, features string) Finding {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known[parityKey{instance.BaseURL, incarnation, model, features}]
}

// Learn records a comparison with the ids that prefill rendered by itself. One
// difference bars the feature set for good: equal ids before or after it were
// luck. It returns what is known now.
func (p *Parity) Learn(instance *Instance, incarnation, model, features string, equal bool) Finding {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := parityKey{instance.BaseURL, incarnation, model, features}
	finding := p.known[key]
	switch {
	case !equal:
		finding = Barred
	case finding == Unknown:
		finding = Trusted
	}
	if finding != p.known[key] && len(p.known) >= maxRemembered {
		clear(p.known)
	}
	p.known[key] = finding
	return finding
}
