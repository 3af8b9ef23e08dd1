package routing

import "carryover/upstream"

// crowded is the share of a KV cache above which an engine is about to preempt or to let requests wait: vLLM hands out blocks
// until none is left.
const crowded = 0.9

// Load returns how busy a candidate is. It is compared with that of candidates of the same pick only: of these all have an
// expected delay or none has.
//
// With an expected delay it is that: requests are no measure of prefill, where one of 100,000 tokens outweighs a hundred
// others. Without one it is the number of requests, ours and those of others; one that waits counts twice, because an engine
// lets requests wait when it has no room. A KV cache that is nearly full weighs up to one request more, or as much as the
// delay again. All of it is divided by the instance's weight.
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

// idle reports whether a candidate has no requests.
func idle(c *upstream.Candidate) bool { return c.InFlight+c.Others == 0 }

// survey is what a policy has to know of all candidates before it weighs one of them.
type survey struct {
	stopped bool    // all of them are; else those that are stopped are not looked at
	mean    float64 // of their loads
	least   float64
	equal   int  // candidates of the least load
	holds   bool // one of them holds KV of the conversation
	prefix  bool // one of them has computed a beginning of the prompt
}

// look surveys the candidates.
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

// counts reports whether a candidate is looked at.
func (s *survey) counts(c *upstream.Candidate) bool { return c.Stopped == s.stopped }
