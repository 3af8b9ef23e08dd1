package upstream

import (
	"testing"
	"time"
)

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
}

func TestTrials_AnUnansweredTrialBarsThePair(t *testing.T) {
	trials := NewTrials()
	trials.Begin("p", "d")
	if !trials.End("p", "d", Unanswered) {
		t.Error("End does not report that the pair is barred")
	}
	if got := trials.Begin("p", "d"); got != NoReuse {
		t.Errorf("after an unanswered trial = %v, want NoReuse", got)
	}
	if trials.End("p", "d", Answered) || trials.Begin("p", "d") != NoReuse {
		t.Error("a late answer lifts the bar")
	}
}

func TestTrials_AnInconclusiveTrialIsRepeated(t *testing.T) {
	trials := NewTrials()
	trials.Begin("p", "d")
	trials.End("p", "d", Inconclusive)
	if got := trials.Begin("p", "d"); got != Trial {
		t.Errorf("after an inconclusive trial = %v, want Trial", got)
	}
	trials.End("nobody", "d", Answered) // a pair nobody has begun
}

func TestTrials_AProvenPairIsAllowedTwoLateAnswersInARow(t *testing.T) {
	trials := NewTrials()
	trials.Begin("p", "d")
	trials.End("p", "d", Answered)
	for range 3 { // two late, then one in time: never barred
		for range 2 {
			if trials.End("p", "d", Unanswered) {
				t.Fatal("barred after two late answers")
			}
		}
		trials.End("p", "d", Answered)
	}
	trials.End("p", "d", Unanswered)
	trials.End("p", "d", Inconclusive) // says nothing either way
	trials.End("p", "d", Unanswered)
	if !trials.End("p", "d", Unanswered) {
		t.Error("not barred after three late answers in a row")
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
