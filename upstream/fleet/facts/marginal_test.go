package facts

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Prompts are computed one after the other at 100 µs a token, and each leg has 12 ms besides. Most have 80 tokens, as turns with a cached
// history, and some 300 to 900, as first turns.
func TestSpeed_MarginalLeavesOutWhatEachLegCosts(t *testing.T) {
	const perToken, besides = 100 * time.Microsecond, 12 * time.Millisecond
	for _, every := range []time.Duration{time.Second, 80 * time.Millisecond, 45 * time.Millisecond} { // the engine is busy for 2, 30 and 50 % of the time
		r := newRig(t)
		s := r.speed()
		draw := rand.New(rand.NewPCG(1, 1))
		var arrives, free, sum time.Duration
		const legs = 2000
		for range legs {
			arrives += time.Duration(draw.ExpFloat64() * float64(every))
			tokens := 60 + draw.IntN(40)
			if draw.IntN(10) < 3 {
				tokens = 300 + draw.IntN(600)
			}
			free = max(free, arrives) + time.Duration(tokens)*perToken
			r.passed.Store(int64(free + besides))
			if computed, took := s.LearnLeg(tokens, free+besides-arrives); computed == tokens {
				s.LearnMarginal(tokens, took)
			}
			sum += s.Marginal()
		}
		if mean := sum / legs; mean < perToken*8/10 || mean > perToken*115/100 {
			t.Errorf("a leg every %v: %v a token, want %v", every, mean, perToken)
		}
	}
}

func TestSpeed_MarginalOfLegsThatShowNoneIsTheTimeOverTheTokens(t *testing.T) {
	r := newRig(t)
	s := r.speed()
	for range 20 {
		r.pass(time.Second)
		s.LearnMarginal(s.LearnLeg(1000, 200*time.Millisecond))
		if got := s.Marginal().Round(time.Microsecond); got != 200*time.Microsecond {
			t.Fatalf("legs of one length: %v", got)
		}
	}
	r.pass(SpeedFor)
	if got := s.Marginal(); got != 0 {
		t.Errorf("a minute later: %v", got)
	}
	r.pass(time.Second)
	for _, tokens := range []int{100, 1000, 100, 1000, 100} {
		s.LearnLeg(tokens, 200*time.Millisecond) // they read KV, too
	}
	if got, want := s.Marginal(), time.Duration(s.shown.PerToken(s.clock())); got != want {
		t.Errorf("legs that tell no slope: %v, want %v", got, want)
	}
}
