package routing

import (
	"sync/atomic"

	"carryover/upstream"
)

// LeastLoaded picks the candidate with the least [Load], and takes candidates of equal load in turn. Stopped candidates come last.
// The zero value is ready.
type LeastLoaded struct {
	next atomic.Uint64
}

// Pick implements upstream.Policy.
func (l *LeastLoaded) Pick(candidates []upstream.Candidate, _ string) int {
	s := look(candidates)
	return l.least(candidates, &s)
}

// least returns the index of the candidate with the least load. If several have it, they are taken in turn.
func (l *LeastLoaded) least(candidates []upstream.Candidate, s *survey) int {
	skip := (l.next.Add(1) - 1) % uint64(s.equal)
	for i := range candidates {
		c := &candidates[i]
		if !s.counts(c) || Load(c) != s.least {
			continue
		}
		if skip == 0 {
			return i
		}
		skip--
	}
	return 0
}
