package upstream

import (
	"fmt"
	"testing"
	"time"
)

// trialsAt returns Trials whose clock is what now points at.
func trialsAt(now *time.Time) *Trials {
	trials := NewTrials()
	trials.Now = func() time.Time { return *now }
	return trials
}

func TestTrials_OneAtATimePerPair(t *testing.T) {
	trials := NewTrials()
	if got := trials.Begin("p", "d"); got != Trial {
		t.Fatalf("first ticket = %v, want Trial", got)
	}
	if got := trials.Begin("p", "d"); got != Busy {
		t.Errorf("second ticket during the trial = %v, want Busy", got)
	}
	if got := trials.Begin("p", "other"); got != Trial {
		t.Errorf("another pair = %v, want its own Trial", got)
	}
	trials.End("p", "d", Answered)
	if got := trials.Begin("p", "d"); got != Proven {
		t.Errorf("after an answer = %v, want Proven", got)
	}
	trials.End("q", "d", Answered) // a pair that was never begun
}

func TestTrials_StoppedPairIsTriedAgainEverMoreRarely(t *testing.T) {
	for _, fate := range []Fate{Unanswered, Failed} {
		now := time.Unix(0, 0)
		trials := trialsAt(&now)
		for round := range 2 { // an answer forgets how often the pair was stopped
			for range strikes - 1 {
				trials.Begin("p", "d")
				trials.End("p", "d", Failed)
			}
			trials.Begin("p", "d")
			for i, minutes := range []time.Duration{1, 2, 4, 8, 16, 30, 30, 30} {
				want := minutes * time.Minute
				if got, resumed := trials.End("p", "d", fate); got != want || resumed {
					t.Fatalf("round %d, stop %d: left alone for %v (resumed %v), want %v", round, i, got, resumed, want)
				}
				now = now.Add(want - 1)
				if got := trials.Begin("p", "d"); got != NoReuse {
					t.Fatalf("round %d, stop %d: %v just before its end, want NoReuse", round, i, got)
				}
				now = now.Add(1)
				if got := trials.Begin("p", "d"); got != Trial {
					t.Fatalf("round %d, stop %d: %v at its end, want Trial", round, i, got)
				}
			}
			if pause, resumed := trials.End("p", "d", Answered); pause != 0 || !resumed {
				t.Fatalf("round %d: an answer gives pause %v, resumed %v", round, pause, resumed)
			}
		}
	}
}

func TestTrials_RemembersABoundedNumberOfPairs(t *testing.T) {
	now := time.Unix(0, 0)
	trials := trialsAt(&now)
	trials.Begin("p@1", "d@1")
	trials.End("p@1", "d@1", Answered)
	trials.Begin("p@old", "d@1")
	trials.End("p@old", "d@1", Answered)
	for i := range maxRemembered + 100 { // d is started again and again
		now = now.Add(time.Millisecond)
		trials.Begin("p@1", fmt.Sprintf("d@%d", i+2))
		now = now.Add(time.Millisecond)
		if got := trials.Begin("p@1", "d@1"); got != Proven {
			t.Fatalf("after %d pairs one that is in use is %v, want Proven", i, got)
		}
	}
	if n := len(trials.pairs); n != maxRemembered {
		t.Errorf("remembers %d pairs, want %d", n, maxRemembered)
	}
	if got := trials.Begin("p@old", "d@1"); got != Trial {
		t.Errorf("a pair that has long not been asked for = %v, want Trial", got)
	}
	trials.End("p@1", "d@2", Answered) // the trial of a pair that is forgotten
	if got := trials.Begin("p@1", "d@2"); got != Trial {
		t.Errorf("a pair that was forgotten during its trial = %v, want Trial", got)
	}
}

func TestPace_FollowsTheLastLegs(t *testing.T) {
	pace := NewPace()
	if got := pace.Expect("p", 1000); got != 0 {
		t.Errorf("before any leg = %v, want 0", got)
	}
	pace.Learn("p", 0, time.Second) // says nothing
	pace.Learn("p", 1000, time.Second)
	if got := pace.Expect("p", 2000); got != 2*time.Second {
		t.Errorf("after one leg = %v, want 2s", got)
	}
	pace.Learn("p", 1000, 6*time.Second)
	if got := pace.Expect("p", 1000); got != 2*time.Second {
		t.Errorf("mean after 1s and 6s = %v, want 2s", got)
	}
}
