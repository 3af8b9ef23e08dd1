package routing

import (
	"math/rand/v2"

	"carryover/upstream"
)

// PowerOfTwo draws two candidates and picks the one of the lower [Load], the first drawn if both are equal. It comes close to
// the least loaded, and where the loads are a few seconds old, as those that several replicas cause, it does not send
// all of them to the same instance. Instances by way of which nothing can be reused are drawn only if there are no others.
type PowerOfTwo struct {
	// Draw returns a number from 0 to n-1, math/rand/v2's IntN if nil.
	Draw func(n int) int
}

// Pick implements upstream.Policy.
func (p *PowerOfTwo) Pick(candidates []upstream.Candidate, _ string) int {
	draw := p.Draw
	if draw == nil {
		draw = rand.IntN
	}
	stopped := 0
	for i := range candidates {
		if candidates[i].Stopped {
			stopped++
		}
	}
	s := survey{stopped: stopped == len(candidates)}
	n := len(candidates) - stopped
	if s.stopped {
		n = stopped
	}
	first := draw(n)
	a := s.nth(candidates, first)
	if n == 1 {
		return a
	}
	second := draw(n - 1)
	if second >= first {
		second++
	}
	b := s.nth(candidates, second)
	if Load(&candidates[b]) < Load(&candidates[a]) {
		return b
	}
	return a
}

// nth returns the index of the nth candidate that is looked at.
func (s *survey) nth(candidates []upstream.Candidate, n int) int {
	for i := range candidates {
		if s.counts(&candidates[i]) {
			if n == 0 {
				return i
			}
			n--
		}
	}
	return 0
}

var _ upstream.Policy = (*PowerOfTwo)(nil)
