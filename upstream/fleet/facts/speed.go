package facts

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// How the speed is learnt.
const (
	speedWeight  = 0.8 // weight of all earlier samples at each new one: a change shows after five legs
	maxCompleted = 32  // legs that are remembered to tell what ran beside a later one
	// SpeedFor is how long a speed counts after the last leg. Without this limit, an engine that seems slow would get few legs and could never
	// show that it is fast again, although a first leg for which kernels were compiled may be all that made it slow.
	SpeedFor = time.Minute
)

// Speed is how fast an engine computes prompts, by the prefill legs that it has answered: the time over the tokens of all legs that the engine
// had meanwhile. It is the only estimate of it. Picks, limits, the value of a hand-back, the credit of a ticket and operators' page use it; who
// waits for other legs counts their tokens, too. The zero value knows no leg. It is safe for concurrent use.
//
// Package health keeps the same samples, too, to eject slow engines: anew after each restart and ejection, and of legs with a certain number of
// tokens only.
type Speed struct {
	// What is read without a lock: until when the speed counts, on the fleet's clock, and the bits of two numbers.
	until             atomic.Int64
	perToken, typical atomic.Uint64

	mu   sync.Mutex  // guards the rest
	legs []completed // in the order of their answers, maxCompleted at most
	// spent and computed are the fading sums of the samples' time and tokens.
	spent, computed float64
}

// completed is a prefill leg that was answered.
type completed struct {
	at     time.Duration // on the fleet's clock
	tokens int           // prompt tokens that prefill computed
}

// Learn records a prefill leg that computed so many tokens of its prompt and was answered now. The speed counts
// for a minute after the last leg.
//
// An engine shares its speed among its prompts, so a leg behind others takes as long as all of them. The sample is therefore the time of the leg
// over the tokens of all legs that were answered meanwhile, its own included. The mean is a quotient of sums, not a mean of quotients: a prompt
// of ten tokens takes a whole step of the engine, which says little. Learn returns the sample, which is 0 if the leg says nothing.
func (s *Speed) Learn(now time.Duration, tokens int, took time.Duration) (computed int, during time.Duration) {
	if tokens <= 0 || took <= 0 {
		return 0, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	began, work := s.since(now-took, tokens)
	if len(s.legs) == maxCompleted {
		s.legs = slices.Delete(s.legs, 0, 1)
	}
	s.legs = append(s.legs, completed{now, tokens})
	if int64(now) >= s.until.Load() {
		s.spent, s.computed = 0, 0
	}
	s.spent = s.spent*speedWeight + float64(now-began)
	s.computed = s.computed*speedWeight + float64(work)
	typical := cmp.Or(s.Typical(), float64(tokens))
	s.typical.Store(math.Float64bits(typical + (float64(tokens)-typical)/5))
	s.perToken.Store(math.Float64bits(s.spent / s.computed))
	s.until.Store(int64(now + SpeedFor))
	return work, now - began
}

// since returns how many tokens were computed since a leg of tokens tokens began. If more legs were answered meanwhile
// than are remembered, it counts from the oldest one that is; from says since when. It needs s.mu.
func (s *Speed) since(began time.Duration, tokens int) (from time.Duration, work int) {
	work = tokens
	for _, leg := range s.legs {
		if leg.at > began {
			work += leg.tokens
		}
	}
	if len(s.legs) == maxCompleted && s.legs[0].at > began {
		return s.legs[0].at, work - s.legs[0].tokens
	}
	return began, work
}

// PerToken returns how many nanoseconds prefill takes per prompt token, 0 while that is not known.
func (s *Speed) PerToken(now time.Duration) float64 {
	if int64(now) >= s.until.Load() {
		return 0
	}
	return s.Shown()
}

// Shown returns what legs have shown last of PerToken, however long ago: 0 before the first.
func (s *Speed) Shown() float64 { return math.Float64frombits(s.perToken.Load()) }

// Typical returns how many tokens an ordinary prefill leg computes, 0 while that is not known.
func (s *Speed) Typical() float64 { return math.Float64frombits(s.typical.Load()) }
