package routing

import "carryover/upstream"

// Auto is the default policy: it looks for KV that can be reused first, and for the least load otherwise. For prefill it picks as
// [Prefix] does. For decode it picks the instance that holds most KV of the conversation; a holder gives way if its load is above
// twice the mean and above one request. If no holder is left, it picks the least loaded decode instance. Stopped candidates come
// last. The zero value is ready.
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
		if i := s.holder(candidates); i >= 0 {
			return i
		}
	}
	return a.decode.least(candidates, &s)
}
