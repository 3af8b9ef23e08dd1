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
	if s.holds {
		if i := s.holder(candidates); i >= 0 {
			return i
		}
	}
	return a.decode.least(candidates, &s)
}

var _ upstream.Policy = (*Auto)(nil)
