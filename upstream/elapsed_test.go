package upstream

import (
	"testing"
	"time"

	"carryover/convcache/clocktest"
)

func TestElapsed_GoesByTheClockThatSaysLonger(t *testing.T) {
	since := time.Now()
	wall := since.Round(0)
	for name, tc := range map[string]struct {
		since, now time.Time
		want       time.Duration
	}{
		"both":                     {since, since.Add(time.Minute), time.Minute},
		"suspended meanwhile":      {since, clocktest.Apart(t, since.Add(time.Second), time.Hour), time.Hour + time.Second},
		"wall clock set back":      {since, clocktest.Apart(t, since.Add(time.Minute), -time.Hour), time.Minute},
		"wall clock only":          {wall, since.Add(time.Minute), time.Minute},
		"to come":                  {since.Add(time.Minute), since, -time.Minute},
		"to come, suspended since": {since.Add(time.Minute), clocktest.Apart(t, since, time.Hour), time.Hour - time.Minute},
	} {
		if got := Elapsed(tc.since, tc.now); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
