package routing

import "carryover/upstream"

// Affinity keeps the turns of a conversation on one instance, whose own prefix
// cache then holds most of its history. It is rendezvous hashing: with the
// instance gone its conversations spread over the others, and nothing else
// moves. Two things weigh more than that: instances by way of which nothing can be
// reused are left to the end, and among the others the one that holds most of the
// conversation's KV comes first. Turns without a conversation go to Otherwise.
type Affinity struct {
	Otherwise upstream.Policy
}

// predictor is a policy that can say what Pick would return now, and leaves whose turn it is as it is. A fleet asks it.
type predictor interface {
	upstream.Policy
	Predict(candidates []upstream.Candidate, key string) int
}

// Pick implements upstream.Policy.
func (a *Affinity) Pick(candidates []upstream.Candidate, key string) int {
	if key == "" {
		return a.Otherwise.Pick(candidates, key)
	}
	return newHome(key).best(candidates)
}

// Predict is what Pick would return now.
func (a *Affinity) Predict(candidates []upstream.Candidate, key string) int {
	if key != "" {
		return newHome(key).best(candidates)
	}
	if otherwise, can := a.Otherwise.(predictor); can {
		return otherwise.Predict(candidates, key)
	}
	return a.Otherwise.Pick(candidates, key)
}

// best returns the candidate that comes first for a conversation.
func (home home) best(candidates []upstream.Candidate) int {
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

// better reports whether a is to be picked before b.
func better(a *upstream.Candidate, aScore uint64, b *upstream.Candidate, bScore uint64) bool {
	switch {
	case a.Stopped != b.Stopped:
		return b.Stopped
	case a.Holds != b.Holds:
		return a.Holds > b.Holds
	}
	return aScore > bScore
}

var _ predictor = (*Affinity)(nil)
