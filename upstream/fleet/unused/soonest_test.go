package unused

import (
	"testing"
	"time"
)

func TestSoonest(t *testing.T) {
	var s soonest
	now := time.Now()
	if s.come(now) {
		t.Error("something has come of nothing")
	}
	s.add(now.Add(3 * time.Second))
	s.add(now.Add(time.Second))
	s.add(now.Add(2 * time.Second).Round(0)) // of a clock that can't stand still
	for after, want := range map[time.Duration]bool{0: false, 999 * time.Millisecond: false, time.Second: true, time.Minute: true} {
		if got := s.come(now.Add(after)); got != want {
			t.Errorf("come after %v: %v, want %v", after, got, want)
		}
		if got := s.come(now.Round(0).Add(after)); got != want {
			t.Errorf("come after %v by the wall clock: %v, want %v", after, got, want)
		}
	}
	// The wall clock says that nothing has come, as if it had been set back; the monotonic one decides.
	behind := soonest{monotonic: now.Add(time.Second), wall: now.Round(0).Add(time.Hour)}
	if !behind.come(now.Add(time.Second)) {
		t.Error("the monotonic clock is not asked")
	}
	ahead := soonest{monotonic: now.Add(time.Hour), wall: now.Round(0).Add(time.Second)}
	if !ahead.come(now.Add(time.Second)) {
		t.Error("the wall clock is not asked")
	}
}
