package routing

import "carryover/upstream"

// Prefix picks the candidate that has the longest beginning of the prompt in its prefix cache, because it has computed it before or has
// received it by a hand-back. If no candidate has any, it picks the conversation's home, and without a conversation the least loaded
// candidate. A favourite whose load is above 1.25 times the mean gives way to the next in this order. An idle favourite keeps the turn,
// except a home that is expected to take longer for the prompt. Stopped candidates come last. The zero value is ready.
type Prefix struct {
	otherwise LeastLoaded
}

// Pick implements upstream.Policy.
func (p *Prefix) Pick(candidates []upstream.Candidate, key string) int {
	s := look(candidates)
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
	return p.otherwise.least(candidates, &s)
}
