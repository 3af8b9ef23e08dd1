package routing

import (
	"hash/fnv"

	"carryover/upstream"
)

// Affinity keeps the turns of a conversation on one instance, whose own prefix
// cache then holds most of its history. It is rendezvous hashing: with the
// instance gone its conversations spread over the others, and nothing else
// moves. Two things weigh more than that: instances by way of which nothing can be
// reused are left to the end, and among the others the one that holds most of the
// conversation's KV comes first. Turns without a conversation go to Otherwise.
type Affinity struct {
	Otherwise upstream.Policy
}

// Pick implements upstream.Policy.
func (a *Affinity) Pick(candidates []upstream.Candidate, key string) int {
	if key == "" {
		return a.Otherwise.Pick(candidates, key)
	}
	best, bestScore := 0, uint64(0)
	for i, c := range candidates {
		s := score(key, c.Name)
		if i == 0 || better(c, s, candidates[best], bestScore) {
			best, bestScore = i, s
		}
	}
	return best
}

// better reports whether a is to be picked before b.
func better(a upstream.Candidate, aScore uint64, b upstream.Candidate, bScore uint64) bool {
	switch {
	case a.Stopped != b.Stopped:
		return b.Stopped
	case a.Holds != b.Holds:
		return a.Holds > b.Holds
	}
	return aScore > bScore
}

// score mixes FNV-1a with the finaliser of SplitMix64, because FNV alone leaves
// the high bits of short, similar names nearly equal.
func score(key, name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(name))
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

var _ upstream.Policy = (*Affinity)(nil)
