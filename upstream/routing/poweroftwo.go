package routing

import (
	"math/rand/v2"

	"carryover/upstream"
)

// PowerOfTwo draws two candidates and picks the one with the lower [Load], or the first drawn if both loads are equal. The result
// comes close to [LeastLoaded]. The load that other replicas cause is known a few seconds late; with PowerOfTwo the replicas do not
// all pick the same instance meanwhile. Stopped candidates are drawn only if all candidates are stopped.
type PowerOfTwo struct {
	// Draw returns a random number from 0 to n-1. If it is nil, PowerOfTwo uses IntN of math/rand/v2.
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

// nth returns the index of the nth candidate that counts.
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
