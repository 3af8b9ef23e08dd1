package facts

import (
	"math"
	"testing"
	"time"
)

// speed returns the speed of an engine, by the rig's clock.
func (r *rig) speed() *Speed {
	return NewSpeed(&SpeedNow{}, func() time.Duration { return time.Duration(r.passed.Load()) })
}

// learnt is what was learnt of an engine, in nanoseconds.
func learnt(s *Speed) float64 { return math.Round(s.shown.PerToken(s.clock())) }

// Ten prompts that arrive at once are answered one after the other. Each takes a second of the engine, the last one ten.
func TestSpeed_QueueingIsNoSlowness(t *testing.T) {
	for _, legs := range []int{10, 3 * maxCompleted} {
		r := newRig(t)
		s := r.speed()
		for i := range legs {
			r.pass(time.Second)
			s.LearnLeg(1000, time.Duration(i+1)*time.Second)
		}
		if got := time.Duration(learnt(s)); got.Round(10*time.Microsecond) != time.Millisecond {
			t.Errorf("%d legs: %v a token, want 1 ms", legs, got)
		}
		if n := len(s.legs); n > maxCompleted {
			t.Errorf("%d legs are remembered", n)
		}
	}
}

func TestSpeed_ATinyPromptSaysLittle(t *testing.T) {
	r := newRig(t)
	s := r.speed()
	for range 5 {
		r.pass(time.Second)
		s.LearnLeg(10_000, time.Second)
		r.pass(time.Second)
		s.LearnLeg(10, 20*time.Millisecond) // 2 ms a token, because of the rest of a leg
	}
	if got := learnt(s); got < 90_000 || got > 120_000 {
		t.Errorf("got %v ns a token, want about 100,000", got)
	}
}

func TestSpeed_OfABodyFollowsTheLastLegs(t *testing.T) {
	s := newRig(t).speed()
	if got := s.Expect(1000); got != 0 {
		t.Errorf("before any leg = %v, want 0", got)
	}
	s.LearnBody(0, time.Second) // says nothing
	s.LearnBody(1000, time.Second)
	if got := s.Expect(2000); got != 2*time.Second {
		t.Errorf("after one leg = %v, want 2s", got)
	}
	s.LearnBody(1000, 6*time.Second)
	if got := s.Expect(1000); got != 2*time.Second {
		t.Errorf("mean after 1s and 6s = %v, want 2s", got)
	}
}
