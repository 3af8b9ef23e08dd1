package fleet

import "time"

// LearnBodySpeed records a prefill leg that computed its prompt, so that a long prompt is not
// mistaken for an engine that never answers. The mean moves by a fifth per leg, so it
// follows load within a few turns. The next start begins with it.
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

// Expect returns how long a prefill of so many bytes of request body has taken of late, 0
// before any.
func (s *Incarnation) Expect(bytes int) time.Duration {
	h := &s.engine.habits
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Duration(h.nsPerByte * float64(bytes))
}
