package routing

import "carryover/upstream"

// Affinity keeps the turns of a conversation on one instance, whose own prefix
// cache then holds most of the conversation's history. It uses rendezvous hashing:
// when an instance goes, its conversations spread over the other instances, and no
// other conversation moves. Two rules come before the hash: stopped candidates come
// last, and among the others the one that holds most of the conversation's KV comes
// first. Turns without a conversation go to Otherwise.
type Affinity struct {
	Otherwise upstream.Policy
}

// predictor is a policy that can tell which candidate Pick would return now, without advancing the policy's rotation. The fleet
// calls Predict.
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

// Predict returns the index that Pick would return now.
func (a *Affinity) Predict(candidates []upstream.Candidate, key string) int {
	if key != "" {
		return newHome(key).best(candidates)
	}
	if otherwise, can := a.Otherwise.(predictor); can {
		return otherwise.Predict(candidates, key)
	}
	return a.Otherwise.Pick(candidates, key)
}

// best returns the index of the candidate that comes first for the conversation.
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

// better reports whether a comes before b.
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
