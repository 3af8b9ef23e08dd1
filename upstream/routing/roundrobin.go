package routing

import (
	"sync/atomic"

	"carryover/upstream"
)

// RoundRobin picks the candidates in turn. The zero value is ready.
type RoundRobin struct {
	next atomic.Uint64
}

// Pick implements upstream.Policy.
func (r *RoundRobin) Pick(candidates []upstream.Candidate, _ string) int {
	return int((r.next.Add(1) - 1) % uint64(len(candidates)))
}

var _ upstream.Policy = (*RoundRobin)(nil)
