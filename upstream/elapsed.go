package upstream

import "time"

// Elapsed returns how long before now a moment was, negative if it is still to come,
// by the clock that says longer: CLOCK_MONOTONIC stands still while a machine is
// suspended, and the wall clock can be set back.
func Elapsed(since, now time.Time) time.Duration {
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}
