package routing

import "carryover/upstream"

// A favourite gives way when its load is above this many times the mean load of the candidates.
const (
	// prefixBound is the bound of consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam 2016). Beyond it the
	// wait costs what a cached prefix saves.
	prefixBound = 1.25
	// holderBound is higher, because a turn that leaves its holder loses its ticket. With two candidates no load is above twice
	// the mean, so a holder never gives way there. A holder also keeps the turn while its load is at most one request.
	holderBound = 2
)

// holder returns the index of the candidate that holds most of the conversation, among the holders that are not too busy. Of several
// it takes the least busy. It returns -1 if there is none.
func (s *survey) holder(candidates []upstream.Candidate) int {
	best, least := -1, 0.0
	for i := range candidates {
		c := &candidates[i]
		if c.Holds == 0 || !s.counts(c) || best >= 0 && c.Holds < candidates[best].Holds {
			continue
		}
		load := Load(c)
		if load > holderBound*s.mean && load > 1 && !idle(c) {
			continue
		}
		if best < 0 || c.Holds > candidates[best].Holds || load < least || load == least && c.Name < candidates[best].Name {
			best, least = i, load
		}
	}
	return best
}

// longest returns the index of the candidate that has most of the prompt in its prefix cache, among the candidates that are not too
// busy. Of several it takes the least busy, and then the one with the highest home score. It returns -1 if there is none.
func (s *survey) longest(candidates []upstream.Candidate, home home) int {
	best, least, nearest := -1, 0.0, uint64(0)
	for i := range candidates {
		c := &candidates[i]
		if c.Prefix == 0 || !s.counts(c) || best >= 0 && c.Prefix < candidates[best].Prefix {
			continue
		}
		load := Load(c)
		if !s.affords(load) && !idle(c) {
			continue
		}
		score := home.score(c.Name)
		if best < 0 || c.Prefix > candidates[best].Prefix || load < least || load == least && score > nearest {
			best, least, nearest = i, load, score
		}
	}
	return best
}

// affords reports whether a favourite with this load keeps the turn.
func (s *survey) affords(load float64) bool { return load <= prefixBound*s.mean }

// home returns the index of the conversation's home, or -1 if the home is too busy. An idle home can be too busy as well, if it is
// expected to take longer for the prompt than others: its cache is not known to hold any of the prompt, so nothing makes up for that.
func (s *survey) home(candidates []upstream.Candidate, home home) int {
	at := home.find(candidates, s)
	if c := &candidates[at]; !s.affords(Load(c)) && (c.Delay > 0 || !idle(c)) {
		return -1
	}
	return at
}
