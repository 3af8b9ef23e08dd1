package fleet

import (
	"context"
	"time"
)

// Paused records that the engine refused a request because it is paused. Picks avoid it for downFor. Its health is
// good meanwhile, and its blocks can be read and released.
func (h *Health) Paused() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pausedUntil = h.engine.fleet.now().Add(downFor)
	h.show()
}

// Pauses reports whether the engine was seen to be paused within the last two seconds.
func (h *Health) Pauses() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.engine.fleet.now().Before(h.pausedUntil)
}

// StillPaused reports whether an engine that has refused a request as paused is paused still. It asks the engine, for a
// fraction of what a leg costs. Of an engine that does not say, [Health.Pauses] is all that is known.
func StillPaused(ctx context.Context, e *Engine) bool {
	f, h := e.fleet, &e.Health
	h.mu.Lock()
	was := !h.pausedUntil.IsZero()
	h.mu.Unlock()
	if !was {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.ReadLimit)
	defer cancel()
	paused, told := f.cfg.Client.IsPaused(ctx, e.Instance())
	h.mu.Lock()
	defer h.mu.Unlock()
	switch now := f.now(); {
	case paused:
		h.pausedUntil = now.Add(downFor)
	case told || !now.Before(h.pausedUntil):
		h.pausedUntil = time.Time{}
	}
	h.show()
	return !h.pausedUntil.IsZero()
}
