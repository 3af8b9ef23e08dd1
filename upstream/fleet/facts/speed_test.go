package facts

import (
	"testing"
	"time"
)

// leg has an engine answer a prefill leg, by the rig's clock.
func (r *rig) leg(s *Speed, tokens int, took time.Duration) {
	s.Learn(time.Duration(r.passed.Load()), tokens, took)
}

// Ten prompts that arrive at once are answered one after the other. Each takes a second of the engine, the last one ten.
func TestSpeed_QueueingIsNoSlowness(t *testing.T) {
	for _, legs := range []int{10, 3 * maxCompleted} {
		r := newRig(t)
		s := &Speed{}
		for i := range legs {
			r.pass(time.Second)
			r.leg(s, 1000, time.Duration(i+1)*time.Second)
		}
		if got := time.Duration(s.Shown()); got.Round(10*time.Microsecond) != time.Millisecond {
			t.Errorf("%d legs: %v a token, want 1 ms", legs, got)
		}
		if n := len(s.legs); n > maxCompleted {
			t.Errorf("%d legs are remembered", n)
		}
	}
}

func TestSpeed_ATinyPromptSaysLittle(t *testing.T) {
	r := newRig(t)
	s := &Speed{}
	for range 5 {
		r.pass(time.Second)
		r.leg(s, 10_000, time.Second)
		r.pass(time.Second)
		r.leg(s, 10, 20*time.Millisecond) // 2 ms a token, because of the rest of a leg
	}
	if got := s.Shown(); got < 90_000 || got > 120_000 {
		t.Errorf("got %v ns a token, want about 100,000", got)
	}
}

func TestSpeed_CountsForAMinuteAndIsRemembered(t *testing.T) {
	r := newRig(t)
	s := &Speed{}
	now := func() time.Duration { return time.Duration(r.passed.Load()) }
	if s.PerToken(now()) != 0 || s.Shown() != 0 || s.Typical() != 0 {
		t.Error("something is known before any leg")
	}
	r.leg(s, 0, time.Second) // says nothing
	r.leg(s, 1000, 0)
	r.leg(s, 1000, time.Second)
	r.pass(SpeedFor - 1)
	if got := s.PerToken(now()); got != 1e6 || s.Typical() != 1000 {
		t.Errorf("within a minute %v ns a token and legs of %v, want 1 ms and 1000", got, s.Typical())
	}
	r.pass(1)
	if got := s.PerToken(now()); got != 0 || s.Shown() != 1e6 {
		t.Errorf("after a minute %v counts and %v is remembered, want 0 and 1 ms", got, s.Shown())
	}
	r.leg(s, 1000, 3*time.Second)
	if got := s.PerToken(now()); got != 3e6 || s.Shown() != 3e6 {
		t.Errorf("a leg after that tells %v, want 3 ms", got)
	}
}
