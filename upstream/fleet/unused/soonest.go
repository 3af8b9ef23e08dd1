package unused

import "time"

// soonest keeps the earliest of some moments by the monotonic and by the wall clock, as upstream.Elapsed compares
// them. The zero value has none.
type soonest struct {
	monotonic time.Time // of the moments that have a monotonic reading
	wall      time.Time
}

// add adds a moment.
func (s *soonest) add(t time.Time) {
	wall := t.Round(0)
	if s.wall.IsZero() || wall.Before(s.wall) {
		s.wall = wall
	}
	if t != wall && (s.monotonic.IsZero() || t.Before(s.monotonic)) { // a time that equals its wall time has no monotonic reading
		s.monotonic = t
	}
}

// come reports whether one of the moments may have come. If it is false, none has.
func (s *soonest) come(now time.Time) bool {
	if s.wall.IsZero() {
		return false
	}
	return !now.Round(0).Before(s.wall) || !s.monotonic.IsZero() && !now.Before(s.monotonic)
}
