package health

import "time"

// Paused records that the engine refused a request because it is paused. Picks avoid it for DownFor. Its health is
// good meanwhile, and its blocks can be read and released.
func (h *Health) Paused() {
	h.change(func(is *condition, now time.Time) { is.pausedUntil = now.Add(DownFor) })
}

// Pauses reports whether the engine was seen to be paused within the last two seconds.
func (h *Health) Pauses() bool { return h.cfg.Now().Before(h.read().pausedUntil) }

// StillPaused reports whether an engine that has refused a request as paused is paused still. It asks the engine if it
// has, and stores the answer. Of an engine that does not tell, Pauses is all that is known.
func (h *Health) StillPaused(ask func() (paused, told bool)) (still bool) {
	if h.read().pausedUntil.IsZero() {
		return false
	}
	paused, told := ask()
	h.change(func(is *condition, now time.Time) {
		switch {
		case paused:
			is.pausedUntil = now.Add(DownFor)
		case told || !now.Before(is.pausedUntil):
			is.pausedUntil = time.Time{}
		}
		still = !is.pausedUntil.IsZero()
	})
	return still
}
