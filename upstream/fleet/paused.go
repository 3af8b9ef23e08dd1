package fleet

import "time"

// Paused records that the engine refused a request because it is paused. Picks avoid it for downFor. Its health is
// good meanwhile, and its blocks can be read and released; only the next request can show that it goes on.
func (e *Engine) Paused() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pausedUntil = e.fleet.now().Add(downFor)
	e.show()
}

// Pauses reports whether the engine has refused a request as paused within the last two seconds.
func (e *Engine) Pauses() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pauses(e.fleet.now())
}

// pauses needs e.mu.
func (e *Engine) pauses(now time.Time) bool { return now.Before(e.pausedUntil) }
