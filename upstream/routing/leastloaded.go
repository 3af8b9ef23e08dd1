package routing

import (
	"sync/atomic"

	"carryover/upstream"
)

// LeastLoaded picks the candidate of the least [Load]; several of the same load in turn. Instances by way of which nothing can
// be reused are left to the end. The zero value is ready.
type LeastLoaded struct {
	next atomic.Uint64
}

// Pick implements upstream.Policy.
func (l *LeastLoaded) Pick(candidates []upstream.Candidate, _ string) int {
	s := look(candidates)
	return l.least(candidates, &s, l.next.Add(1)-1)
}

// Predict is what Pick would return now.
func (l *LeastLoaded) Predict(candidates []upstream.Candidate, _ string) int {
	s := look(candidates)
	return l.least(candidates, &s, l.next.Load())
}

// least returns the candidate of the least load, of several the nth.
func (l *LeastLoaded) least(candidates []upstream.Candidate, s *survey, n uint64) int {
	skip := n % uint64(s.equal)
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

var _ predictor = (*LeastLoaded)(nil)
