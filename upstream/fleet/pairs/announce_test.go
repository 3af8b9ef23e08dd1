package pairs

import (
	"testing"
	"time"
)

// A pair that misses two announcements in a row is left alone, longer each time, and one turn at a time tries it then; what began to
// wait before changes nothing.
func TestState_Announces(t *testing.T) {
	now := time.Now()
	ps := &State{now: func() time.Time { return now }}
	want := func(what string, got, want any) {
		t.Helper()
		if got != want {
			t.Fatalf("%s: got %v, want %v", what, got, want)
		}
	}
	want("a new link", ps.Announces(), true)
	want("the first miss", ps.NotAnnounced(10), time.Duration(0))
	ps.Arrived(10)
	want("a miss after an arrival", ps.NotAnnounced(10), time.Duration(0))
	want("one miss", ps.Announces(), true)
	for _, rest := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute, 5 * time.Minute} {
		want("a second miss, or a trial in vain", ps.NotAnnounced(10), rest)
		want("a turn that began to wait before", ps.NotAnnounced(10), time.Duration(0))
		now = now.Add(rest - time.Nanosecond)
		want("a link at rest", ps.Announces(), false)
		now = now.Add(time.Nanosecond)
		want("a link that has rested", ps.Announces(), true)
		want("a second turn", ps.Announces(), false)
	}
	now = now.Add(tryFor)
	want("a trial of which nothing was heard", ps.Announces(), true)
	ps.Arrived(10)
	want("an arrival", ps.Announces(), true)
	want("a miss after that", ps.NotAnnounced(10), time.Duration(0))
	for range 9 {
		want("a longer prompt than any that was announced", ps.NotAnnounced(11), time.Duration(0))
	}
	want("a link with long prompts", ps.Announces(), true)
	var none *State
	none.Arrived(10)
	want("no link", none.Announces() && none.NotAnnounced(10) == 0, true)
}
