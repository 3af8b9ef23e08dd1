package fleet

// Paused records that the engine refused a request because it is paused. Picks avoid it for downFor. Its health is
// good meanwhile, and its blocks can be read and released; only the next request can show that it goes on.
func (h *Health) Paused() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pausedUntil = h.engine.fleet.now().Add(downFor)
	h.show()
}

// Pauses reports whether the engine has refused a request as paused within the last two seconds.
func (h *Health) Pauses() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.engine.fleet.now().Before(h.pausedUntil)
}
