package server

import "carryover/upstream"

// maxDecodeOnly bounds the turns that decode prefills by itself because no
// prefill instance can be reached: a decode instance that does all the work
// serves its open streams more slowly.
const maxDecodeOnly = 16

// pair is the instances of one attempt, and their starts, once find has found them out. prefill is nil when decode prefills
// by itself.
type pair struct {
	prefill, decode *upstream.Instance
	starts          starts
	barred          bool // the attempt avoids a prefill instance that is barred, or its prefix cache
	releases        []func()
}

func (p *pair) release() {
	for _, release := range p.releases {
		release()
	}
}

// pick chooses the instances of this attempt and the path: prefill and decode,
// or decode alone for requests that disaggregation can't serve (several choices
// or prompts share one hand-over, vLLM #43509) and while prefill is unreachable or
// barred. Beyond what decode can do alone, a barred prefill serves with a
// cache_salt of the turn's own, so that nothing of its prefix cache is read.
func (s *Server) pick(t *turn) (*pair, error) {
	p := &pair{}
	key := t.conversation.affinity()
	decode, release, err := s.deps.Pool.Acquire(upstream.RoleDecode, key, t.excluded[upstream.RoleDecode])
	if err != nil {
		return nil, t.lastOr(err)
	}
	p.decode, p.releases = decode, append(p.releases, release)
	if _, ok := t.req.Disaggregable(); !ok {
		return p, nil
	}
	failed := t.excluded[upstream.RolePrefill]
	barred := s.barredPrefills()
	if len(failed) < maxDials && s.pickPrefill(p, key, append(barred, failed...)) {
		return p, nil
	}
	p.barred = len(barred) > 0
	select {
	case s.decodeOnly <- struct{}{}:
		p.releases = append(p.releases, func() { <-s.decodeOnly })
		return p, nil
	default:
	}
	if p.barred && len(failed) < maxDials && s.pickPrefill(p, key, failed) {
		t.salt = newID()
		return p, nil
	}
	p.release()
	return nil, t.lastOr(unavailable("prefill_unavailable", "No prefill engine is available."))
}

// pickPrefill adds a prefill instance to the pair, if there is one.
func (s *Server) pickPrefill(p *pair, key string, exclude []string) bool {
	prefill, release, err := s.deps.Pool.Acquire(upstream.RolePrefill, key, exclude)
	if err != nil {
		return false
	}
	p.prefill, p.releases = prefill, append(p.releases, release)
	return true
}

// lastOr returns the failure that led to this attempt, which says more than that
// nobody is left, or else err.
func (t *turn) lastOr(err error) error {
	if t.failed != nil {
		return t.failed
	}
	return err
}
