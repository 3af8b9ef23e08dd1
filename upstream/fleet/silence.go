package fleet

// silentAfter is how many finished answers in a row without params make a decode incarnation count as silent. vLLM may
// leave params out of a single answer for its own reasons.
const silentAfter = 3

// SentNothing records a finished answer to a hand-over that brought no params. Stock vLLM brings none in any stream
// (vLLM #40186). It reports whether the incarnation has become silent by it.
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
