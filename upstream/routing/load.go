package routing

import "carryover/upstream"

// crowded is the share of a KV cache in use above which an engine will soon preempt requests or let them wait: vLLM gives out blocks until
// none is left.
const crowded = 0.9

// Load returns how busy a candidate is. Only loads of the same pick are comparable: all its candidates have an expected delay, or none has.
//
// The load is the expected delay if there is one: the number of requests says little about prefill, where one request of 100,000 tokens
// outweighs a hundred others. Without a delay, it is the number of requests, of this replica and of others. A waiting request counts twice,
// because an engine lets requests wait only when it is full. A KV cache that is nearly full adds up to one request, or up to the delay once
// more. The sum is divided by the instance's weight.
func Load(c *upstream.Candidate) float64 {
	load := c.Delay
	if load == 0 {
		load = float64(c.InFlight + c.Others + c.Waiting)
		if c.KVUsage > crowded {
			load += (c.KVUsage - crowded) / (1 - crowded)
		}
	} else if c.KVUsage > crowded {
		load *= 1 + (c.KVUsage-crowded)/(1-crowded)
	}
	if c.Weight > 1 {
		load /= float64(c.Weight)
	}
	return load
}

func idle(c *upstream.Candidate) bool { return c.InFlight+c.Others == 0 }

type survey struct {
	stopped bool    // all candidates are stopped; else stopped candidates do not count
	mean    float64 // load of the candidates that count
	least   float64
	equal   int  // how many candidates have the least load
	holds   bool // a candidate holds KV of the conversation
	prefix  bool // a candidate has computed a beginning of the prompt
}

func look(candidates []upstream.Candidate) (s survey) {
	s.stopped = true
	for i := range candidates {
		if !candidates[i].Stopped {
			s.stopped = false
			break
		}
	}
	sum, n := 0.0, 0
	for i := range candidates {
		c := &candidates[i]
		if !s.counts(c) {
			continue
		}
		load := Load(c)
		switch {
		case n == 0 || load < s.least:
			s.least, s.equal = load, 1
		case load == s.least:
			s.equal++
		}
		sum, n = sum+load, n+1
		s.holds = s.holds || c.Holds > 0
		s.prefix = s.prefix || c.Prefix > 0
	}
	s.mean = sum / float64(n)
	return s
}

// counts is true for all candidates if all are stopped.
func (s *survey) counts(c *upstream.Candidate) bool { return c.Stopped == s.stopped }

// A favourite gives way when its load is above this many times the mean load of the candidates.
const (
	// prefixBound is the bound of consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam 2016). Beyond it the wait costs what
	// a cached prefix saves.
	prefixBound = 1.25
	// holderBound is higher, because a turn that leaves its holder loses its ticket. With two candidates no load is above twice the mean, so
	// a holder never gives way there. A holder also keeps the turn while its load is at most one request.
	holderBound = 2
)

// favourite returns the index of the candidate with most KV for the turn that is not too busy: of the conversation if holds is set, else of
// the prompt's beginning in its prefix cache. Among equals it takes the least busy, and then the highest home score. It returns -1 for none.
func (s *survey) favourite(candidates []upstream.Candidate, home home, holds bool) int {
	best, most, least, nearest := -1, 0, 0.0, uint64(0)
	for i := range candidates {
		c := &candidates[i]
		has := c.Prefix
		if holds {
			has = c.Holds
		}
		if has == 0 || has < most || !s.counts(c) {
			continue
		}
		load := Load(c)
		if keeps := s.affords(load) || holds && (load <= holderBound*s.mean || load <= 1); !keeps && !idle(c) {
			continue
		}
		score := home.score(c.Name)
		if best < 0 || has > most || load < least || load == least && score > nearest {
			best, most, least, nearest = i, has, load, score
		}
	}
	return best
}

func (s *survey) affords(load float64) bool { return load <= prefixBound*s.mean }

// home returns the index of the conversation's home, or -1 if the home is too busy. An idle home is too busy if it is expected to take longer
// for the prompt than others: no known cache makes up for that.
func (s *survey) home(candidates []upstream.Candidate, home home) int {
	at := home.find(candidates, s)
	if c := &candidates[at]; !s.affords(Load(c)) && (c.Delay > 0 || !idle(c)) {
		return -1
	}
	return at
}
