package facts

import "sync"

// SilentAfter is how many finished answers in a row without params make a decode incarnation count as silent. vLLM may
// leave params out of a single answer for its own reasons.
const SilentAfter = 3

// Silence is whether a decode incarnation leaves kv_transfer_params out of its answers.
type Silence struct {
	mu      sync.Mutex
	answers int // in a row that brought none
}

// SentNothing records a finished answer to a hand-over that brought no params. Stock vLLM brings none in any stream
// (vLLM #40186). It reports whether the incarnation has become silent by it.
func (s *Silence) SentNothing() (silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers++
	return s.answers == SilentAfter
}

// SentParams records an answer with params.
func (s *Silence) SentParams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = 0
}

// Silent reports whether the incarnation sends no params.
func (s *Silence) Silent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answers >= SilentAfter
}
