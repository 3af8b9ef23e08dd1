package fleet

import "time"

// Paused says that the engine has refused a request because it is paused. It is avoided for a moment: its health is good, and what it
// holds can be read and released meanwhile. Nothing tells when it goes on, but the next request.
func (e *Engine) Paused() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pausedUntil = e.fleet.now().Add(downFor)
	e.show()
}

// Pauses reports whether the engine has said so within the last two seconds.
func (e *Engine) Pauses() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pauses(e.fleet.now())
}

// pauses needs e.mu.
func (e *Engine) pauses(now time.Time) bool { return now.Before(e.pausedUntil) }
