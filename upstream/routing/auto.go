package routing

import "carryover/upstream"

// Auto is the default: what can be reused first, the least load otherwise. Decode instances that hold KV of the conversation come
// first, the one that holds most before the others; one whose load is above twice the mean, and above one request, gives
// way. Of prefill instances it picks as [Prefix] does; of decode instances that hold nothing the least loaded. Instances by way
// of which nothing can be reused are left to the end. The zero value is ready.
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
	if i := s.mostHeld(candidates); i >= 0 {
		return i
	}
	return a.decode.least(candidates, &s, a.decode.next.Add(1)-1)
}

// Predict is what Pick would return now.
func (a *Auto) Predict(candidates []upstream.Candidate, key string) int {
	if candidates[0].Role != upstream.RoleDecode {
		return a.prefill.Predict(candidates, key)
	}
	s := look(candidates)
	if i := s.mostHeld(candidates); i >= 0 {
		return i
	}
	return a.decode.least(candidates, &s, a.decode.next.Load())
}

// mostHeld returns the holder that is picked, -1 if none is.
func (s *survey) mostHeld(candidates []upstream.Candidate) int {
	if !s.holds {
		return -1
	}
	return s.holder(candidates)
}

var _ predictor = (*Auto)(nil)
