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

// BenchmarkLedger is what a turn without a conversation does among 1,000 unused tickets: one comes, one goes, and turns look
// whether any waits.
func BenchmarkLedger(b *testing.B) {
	s := New(Config{Now: time.Now})
	u := Ticket{Deadline: time.Now().Add(time.Hour), Since: time.Now()}
	add := func() {
		s.soonest.add(u.Deadline)
		s.unused = append(s.unused, u)
	}
	for range 1000 {
		add()
	}
	b.ReportAllocs()
	for b.Loop() {
		add()
		if !s.Waits() {
			b.Fatal("nothing waits")
		}
		if _, ok := s.Take(nil, true); !ok {
			b.Fatal("nothing to take")
		}
	}
}
