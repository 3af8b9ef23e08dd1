package server

import "carryover/upstream"

// maxDecodeOnly bounds the turns that decode prefills by itself because no
// prefill instance can be reached: a decode instance that does all the work
// serves its open streams more slowly.
const maxDecodeOnly = 16

// pair is the instances of one attempt. prefill is nil when decode prefills by
// itself.
type pair struct {
	prefill, decode *upstream.Instance
	releases        []func()
}

func (p *pair) release() {
	for _, release := range p.releases {
		release()
	}
}

// pick chooses the instances of this attempt and the path: prefill and decode,
// or decode alone for requests that disaggregation can't serve (several choices
// or prompts share one hand-over, vLLM #43509) and while prefill is unreachable.
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
	if len(t.excluded[upstream.RolePrefill]) < maxDials {
		prefill, release, err := s.deps.Pool.Acquire(upstream.RolePrefill, key, t.excluded[upstream.RolePrefill])
		if err == nil {
			p.prefill, p.releases = prefill, append(p.releases, release)
			return p, nil
		}
	}
	select {
	case s.decodeOnly <- struct{}{}:
		p.releases = append(p.releases, func() { <-s.decodeOnly })
		return p, nil
	default:
		p.release()
		return nil, t.lastOr(unavailable("prefill_unavailable", "No prefill engine is available."))
	}
}

// lastOr returns the failure that led to this attempt, which says more than that
// nobody is left, or else err.
func (t *turn) lastOr(err error) error {
	if t.failed != nil {
		return t.failed
	}
	return err
}
