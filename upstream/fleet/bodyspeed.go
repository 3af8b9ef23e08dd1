package fleet

import "time"

// LearnBodySpeed records a prefill leg that computed its prompt, so that a long prompt is not mistaken for an engine
// that never answers. Each leg moves the mean by a fifth, so it follows load within a few turns. The engine keeps it
// over restarts.
func (s *Incarnation) LearnBodySpeed(bytes int, took time.Duration) {
	if bytes == 0 {
		return
	}
	sample := float64(took) / float64(bytes)
	h := &s.engine.habits
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bodySpeedKnown {
		sample = h.nsPerByte + (sample-h.nsPerByte)/5
	}
	h.bodySpeedKnown, h.nsPerByte = true, sample
}

// Expect returns how long a prefill of a body of that size takes by the recent mean, 0 before the first leg.
func (s *Incarnation) Expect(bytes int) time.Duration {
	h := &s.engine.habits
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Duration(h.nsPerByte * float64(bytes))
}
