package routing

import "carryover/upstream"

// Prefix picks the candidate that has computed the longest beginning of the prompt before, or had it handed back, and so has it in its
// prefix cache; a prompt that none has seen goes to its conversation's home, and one without a conversation to the least loaded. A favourite
// that is busier than 1.25 times the mean gives way to the next, in that order; one without requests never does. Instances by
// way of which nothing can be reused are left to the end. The zero value is ready.
type Prefix struct {
	otherwise LeastLoaded
}

// Pick implements upstream.Policy.
func (p *Prefix) Pick(candidates []upstream.Candidate, key string) int {
	s := look(candidates)
	if i := s.favourite(candidates, key); i >= 0 {
		return i
	}
	return p.otherwise.least(candidates, &s, p.otherwise.next.Add(1)-1)
}

// Predict is what Pick would return now.
func (p *Prefix) Predict(candidates []upstream.Candidate, key string) int {
	s := look(candidates)
	if i := s.favourite(candidates, key); i >= 0 {
		return i
	}
	return p.otherwise.least(candidates, &s, p.otherwise.next.Load())
}

// favourite returns the candidate that speaks for itself, by what it has computed before or as the home of the conversation; -1 if
// none does.
func (s *survey) favourite(candidates []upstream.Candidate, key string) int {
	home := newHome(key)
	if s.prefix {
		if i := s.longest(candidates, home); i >= 0 {
			return i
		}
	}
	if key != "" {
		if i := s.home(candidates, home); i >= 0 {
			return i
		}
	}
	return -1
}

var _ predictor = (*Prefix)(nil)
