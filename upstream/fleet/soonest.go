package fleet

import "time"

// soonest knows when the first of some moments has come by either clock, in the sense of upstream.Elapsed. The zero value has none.
type soonest struct {
	monotonic time.Time // of those that have such a reading
	wall      time.Time
}

// add takes in a moment.
func (s *soonest) add(t time.Time) {
	wall := t.Round(0)
	if s.wall.IsZero() || wall.Before(s.wall) {
		s.wall = wall
	}
	if t != wall && (s.monotonic.IsZero() || t.Before(s.monotonic)) { // equal to its wall time is what has no monotonic reading
		s.monotonic = t
	}
}

// come reports whether one may have come; if not, none has.
func (s *soonest) come(now time.Time) bool {
	if s.wall.IsZero() {
		return false
	}
	return !now.Round(0).Before(s.wall) || !s.monotonic.IsZero() && !now.Before(s.monotonic)
}
