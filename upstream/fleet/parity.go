package fleet

import (
	"carryover/upstream/fleet/facts"
	"crypto/sha256"
)

// Parity says whether, for requests with these features, /tokenize gives the same ids as the completion endpoint of
// this prefill incarnation: Yes if that was seen, No if a difference was seen once. They differ where a template or
// renderer sees something that /tokenize is not told. features is [body.Request.FeatureSet].
func (s *Incarnation) Parity(model, features string) facts.Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parity[digest(model, features)]
}

// LearnParity records a comparison of /tokenize's ids with those that prefill rendered itself, and returns what is
// known now. One difference decides for good: equal ids before or after it were luck.
func (s *Incarnation) LearnParity(model, features string, equal bool) facts.Finding {
	if !s.Known() {
		return facts.Unknown
	}
	key := digest(model, features)
	s.mu.Lock()
	defer s.mu.Unlock()
	finding := s.parity[key]
	switch {
	case !equal:
		finding = facts.No
	case finding == facts.Unknown:
		finding = facts.Yes
	}
	if s.parity == nil || finding != s.parity[key] && len(s.parity) >= maxLearnt {
		s.parity = map[[sha256.Size]byte]facts.Finding{}
	}
	s.parity[key] = finding
	return finding
}
