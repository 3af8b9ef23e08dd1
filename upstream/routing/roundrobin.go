package routing

import (
	"sync/atomic"

	"carryover/upstream"
)

// RoundRobin picks the candidates in turn. A candidate of weight n is picked n times in a row. Nothing else matters to it. The zero
// value is ready.
type RoundRobin struct {
	next atomic.Uint64
}

// Pick implements upstream.Policy.
func (r *RoundRobin) Pick(candidates []upstream.Candidate, _ string) int {
	return r.nth(candidates, r.next.Add(1)-1)
}

// Predict returns the index that Pick would return now.
func (r *RoundRobin) Predict(candidates []upstream.Candidate, _ string) int {
	return r.nth(candidates, r.next.Load())
}

// nth returns the index of the candidate that has the nth turn.
func (r *RoundRobin) nth(candidates []upstream.Candidate, n uint64) int {
	sum := 0
	for i := range candidates {
		sum += max(1, candidates[i].Weight)
	}
	turn := int(n % uint64(sum))
	for i := range candidates {
		if turn -= max(1, candidates[i].Weight); turn < 0 {
			return i
		}
	}
	return 0
}

var _ predictor = (*RoundRobin)(nil)
