package fleet

import "crypto/sha256"

// maxLearnt bounds what is remembered of one start for the sake of what clients send.
// A deployment sees dozens of shapes and models; a client that invents more only makes
// them be learnt anew.
const maxLearnt = 1024

// Parity tells for which shapes of requests /tokenize gives the ids that the completion
// endpoint of the same prefill start renders: Yes where it is trusted, No where it is
// barred. Where it does not, a template or renderer sees something that /tokenize is not
// told. features is [upstream.Request.FeatureSet].
func (s *Incarnation) Parity(model, features string) Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parity[digest(model, features)]
}

// LearnParity records a comparison with the ids that prefill rendered by itself. One
// difference bars the feature set for good: equal ids before or after it were
// luck. It returns what is known now.
func (s *Incarnation) LearnParity(model, features string, equal bool) Finding {
	if !s.Known() {
		return Unknown
	}
	key := digest(model, features)
	s.mu.Lock()
	defer s.mu.Unlock()
	finding := s.parity[key]
	switch {
	case !equal:
		finding = No
	case finding == Unknown:
		finding = Yes
	}
	if s.parity == nil || finding != s.parity[key] && len(s.parity) >= maxLearnt {
		s.parity = map[[sha256.Size]byte]Finding{}
	}
	s.parity[key] = finding
	return finding
}
