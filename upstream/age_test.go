package upstream

import (
	"testing"
	"time"

	"carryover/convcache/clocktest"
)

// reading is a read that began so long after the leg, whether it left nothing behind, and how long after the leg nothing
// had arrived yet of what is returned next.
type reading struct {
	at   time.Duration
	less bool
	want time.Duration
}

func TestAge_CountsFromTheReadBeforeTheLast(t *testing.T) {
	const second, ms = time.Second, time.Millisecond
	for name, reads := range map[string][]reading{
		"of a stream":  {{1 * second, true, 0}, {2 * second, true, 1 * second}, {3 * second, true, 2 * second}, {4 * second, true, 3 * second}},
		"of one burst": {{1 * second, true, 0}, {1100 * ms, true, 1 * second}, {1100 * ms, true, 1100 * ms}, {1100 * ms, true, 1100 * ms}},
		// A read that returns all that it could may have left something.
		"that lay there": {
			{1 * second, true, 0}, {2 * second, false, 1 * second}, {3 * second, false, 1 * second}, {3 * second, true, 1 * second},
			{4 * second, true, 3 * second},
		},
		"that always fills the reads": {{1 * second, false, 0}, {2 * second, false, 0}, {300 * second, false, 0}},
		// What the engine could not send while nothing was read comes after that.
		"after a pause, nothing": {{1 * second, true, 0}, {60 * second, true, 1 * second}, {61 * second, true, 1 * second}},
		"after a pause, until as long again": {
			{1 * second, true, 0}, {11 * second, true, 1 * second}, {12 * second, true, 1 * second}, {13 * second, true, 1 * second},
			{15 * second, true, 1 * second}, {17 * second, true, 1 * second}, {19 * second, true, 1 * second}, {20 * second, true, 1 * second},
			{21 * second, true, 1 * second}, {22 * second, true, 21 * second},
		},
		"after a pause in full reads": {{1 * second, true, 0}, {2 * second, false, 1 * second}, {10 * second, false, 1 * second}, {10 * second, true, 1 * second}, {11 * second, true, 1 * second}},
		"that begins late":            {{10 * second, true, 0}, {11 * second, true, 0}, {12 * second, true, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			leg := time.Now()
			a := age{doubted: leg.Add(time.Hour)} // of the leg before
			a.begin(leg)
			for i, r := range reads {
				a.read(leg.Add(r.at), r.less)
				if got := a.before.Sub(leg); got != r.want {
					t.Fatalf("read %d at %v: counts from %v, want %v", i, r.at, got, r.want)
				}
			}
		})
	}
}

// While a machine is suspended its kernel takes nothing in either, and its monotonic clock stands still.
func TestAge_ASuspendedMachineFindsNoProofAtOnce(t *testing.T) {
	leg := time.Now()
	var a age
	a.begin(leg)
	awake := clocktest.Apart(t, leg.Add(time.Second), time.Hour)
	for range 10 {
		a.read(awake, true)
		awake = awake.Add(time.Second)
	}
	if !a.before.Equal(leg) {
		t.Errorf("counts from %v before it woke, want the moment before it slept", awake.Sub(a.before))
	}
}
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
