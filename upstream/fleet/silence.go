package fleet

// silentAfter is how many finished answers in a row without params make a decode incarnation
// one that sends none: vLLM leaves them out of single answers for reasons of its own.
const silentAfter = 3

// SentNothing records a finished answer to a hand-over that brought no params, which stock
// vLLM does in every stream (vLLM #40186). It reports whether the incarnation has just become
// silent.
func (s *Incarnation) SentNothing() (silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silence++
	return s.silence == silentAfter
}

// SentParams records an answer with params.
func (s *Incarnation) SentParams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silence = 0
}

// Silent reports whether the incarnation sends no params.
func (s *Incarnation) Silent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.silence >= silentAfter
}
