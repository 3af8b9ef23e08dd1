// Package routing holds the policies by which a fleet picks an instance. A policy is a function of the candidates and the
// conversation's key: it performs no I/O and reads no clock. Given the same candidates, every replica finds the same favourite for a
// turn (home.go). Among equal candidates a policy takes one after the other, or draws at random ([PowerOfTwo]). All policies measure
// load in the same way (load.go).
package routing

import (
	"math/rand/v2"
	"sync/atomic"

	"carryover/upstream"
)

// Auto is the default policy. For prefill it picks as [Prefix] does. For decode it picks the instance that holds most KV of the
// conversation, else the least loaded one. A holder gives way if its load is above twice the mean and above one request, because a turn
// that leaves its holder loses its ticket. Stopped candidates come last. The zero value is ready.
type Auto struct {
	prefill Prefix
	decode  LeastLoaded
}

// Pick implements upstream.Policy.
func (a *Auto) Pick(candidates []upstream.Candidate, key string) int {
	if candidates[0].Role != upstream.RoleDecode {
		return a.prefill.Pick(candidates, key)
	}
	s := look(candidates)
	if s.holds {
		if i := s.favourite(candidates, newHome(key), true); i >= 0 {
			return i
		}
	}
	return a.decode.least(candidates, &s)
}

// Prefix picks the candidate with the longest beginning of the prompt in its prefix cache, which it has computed or received by a
// hand-back. Without one it picks the conversation's home, and without a conversation the least loaded candidate. A favourite whose
// load is above 1.25 times the mean gives way to the next in this order. An idle favourite keeps the turn, except a home that is
// expected to take longer for the prompt. Stopped candidates come last. The zero value is ready.
type Prefix struct {
	otherwise LeastLoaded
}

// Pick implements upstream.Policy.
func (p *Prefix) Pick(candidates []upstream.Candidate, key string) int {
	s := look(candidates)
	home := newHome(key)
	if s.prefix {
		if i := s.favourite(candidates, home, false); i >= 0 {
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

// LeastLoaded picks the candidate with the least [Load], and takes candidates of equal load in turn. Stopped candidates come last. The
// zero value is ready.
type LeastLoaded struct {
	next atomic.Uint64
}

// Pick implements upstream.Policy.
func (l *LeastLoaded) Pick(candidates []upstream.Candidate, _ string) int {
	s := look(candidates)
	return l.least(candidates, &s)
}

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

// Affinity keeps the turns of a conversation on one instance, whose own prefix cache then holds most of its history. It uses rendezvous
// hashing: when an instance goes, its conversations spread over the others, and no other conversation moves. Before the hash, stopped
// candidates come last, and the one that holds most of the conversation's KV comes first. Turns without a conversation go to Otherwise.
type Affinity struct {
	Otherwise upstream.Policy
}

// Pick implements upstream.Policy.
func (a *Affinity) Pick(candidates []upstream.Candidate, key string) int {
	if key == "" {
		return a.Otherwise.Pick(candidates, key)
	}
	home := newHome(key)
	best, bestScore := 0, uint64(0)
	for i := range candidates {
		c := &candidates[i]
		s := home.score(c.Name)
		if i == 0 || better(c, s, &candidates[best], bestScore) {
			best, bestScore = i, s
		}
	}
	return best
}

func better(a *upstream.Candidate, aScore uint64, b *upstream.Candidate, bScore uint64) bool {
	switch {
	case a.Stopped != b.Stopped:
		return b.Stopped
	case a.Holds != b.Holds:
		return a.Holds > b.Holds
	}
	return aScore > bScore
}

// RoundRobin picks the candidates in turn, one of weight n n times in a row. Nothing else matters to it. The zero value is ready.
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

// PowerOfTwo draws two candidates and picks the one with the lower [Load], or the first drawn if both are equal. The result comes close
// to [LeastLoaded]. Loads from other replicas are known a few seconds late; with PowerOfTwo the replicas do not all pick the same
// instance meanwhile. Stopped candidates are drawn only if all are stopped.
type PowerOfTwo struct {
	// Draw returns a random number from 0 to n-1; nil means IntN of math/rand/v2.
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
