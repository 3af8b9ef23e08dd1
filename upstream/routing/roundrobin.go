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
	sum := 0
	for i := range candidates {
		sum += max(1, candidates[i].Weight)
	}
	turn := int((r.next.Add(1) - 1) % uint64(sum))
	for i := range candidates {
		if turn -= max(1, candidates[i].Weight); turn < 0 {
			return i
		}
	}
	return 0
}
