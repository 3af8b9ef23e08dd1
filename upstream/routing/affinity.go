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
