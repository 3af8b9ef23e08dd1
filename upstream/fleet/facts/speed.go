package facts

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	speedWeight  = 0.8 // weight of all earlier samples at each new one: a change shows after five legs
	maxCompleted = 32  // legs kept to tell what ran beside a later one
	// SpeedFor is how long a speed counts after the last leg. Without it, an engine that seems slow would get few legs and never show that it is
	// fast again. One first leg that compiled kernels may be the only slow one.
	SpeedFor = time.Minute
)

// Speed is how fast an engine computes prompts, by its prefill legs. It is the only estimate: picks, limits, the value of a hand-back, the
// credit of a ticket and the operators' page use it, and whoever waits for other legs counts their tokens, too. The zero value knows no leg. It
// is safe for concurrent use.
//
// Package health keeps the same samples to eject slow engines, but starts again after each restart and ejection, and takes only legs with a
// certain number of tokens.
type Speed struct {
	// Readers need no lock: until is on the fleet's clock, the others are bits of floats.
	until             atomic.Int64
	perToken, typical atomic.Uint64

	mu   sync.Mutex  // guards the rest
	legs []completed // in the order of their answers, maxCompleted at most
	// spent and computed are fading sums of the samples' time and tokens.
	spent, computed float64
}

type completed struct {
	at     time.Duration // on the fleet's clock
	tokens int           // prompt tokens that prefill computed
}

// Learn records a prefill leg that was answered now and computed this many tokens of its prompt. It returns the sample, 0 if the leg says
// nothing.
//
// An engine shares its speed among its prompts, so a leg behind others takes as long as all of them. So a sample is the leg's time over the
// tokens of all legs answered meanwhile, its own included. The mean is a quotient of sums, not a mean of quotients: a prompt of ten tokens takes
// a whole step of the engine, which says little.
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

// since returns the tokens computed since a leg began. If not all legs since then are remembered, it counts from the
// oldest one; from says since when. It needs s.mu.
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

// PerToken returns prefill's nanoseconds per prompt token, 0 if unknown.
func (s *Speed) PerToken(now time.Duration) float64 {
	if int64(now) >= s.until.Load() {
		return 0
	}
	return s.Shown()
}

// Shown is PerToken however old, 0 before the first leg.
func (s *Speed) Shown() float64 { return math.Float64frombits(s.perToken.Load()) }

// Typical returns how many tokens an ordinary prefill leg computes, 0 if unknown.
func (s *Speed) Typical() float64 { return math.Float64frombits(s.typical.Load()) }
