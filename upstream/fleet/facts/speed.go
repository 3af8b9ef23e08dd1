package facts

import (
	"math"
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

// Speed is how fast an engine computes prompts, by the prefill legs that it has answered. It belongs to the machine, so it outlasts restarts.
//
// Per token, it is the time over the tokens of all legs that the engine had meanwhile: how long prefill will take for a further prompt. Picks
// use it, and count waiting apart, by tokens. Per byte of the body, it is the whole time of a leg, waiting included: how long a leg that carries
// a ticket may take. That one serves where the body is all that is known. Package health keeps the same samples, too, to eject slow engines:
// anew after each restart and ejection, and of legs with a certain number of tokens only.
type Speed struct {
	clock func() time.Duration
	shown *SpeedNow

	mu   sync.Mutex  // guards the rest
	legs []completed // in the order of their answers; with maxCompleted of them, the oldest is at next
	next int
	// spent and computed are the fading sums of the samples' time and tokens; typical is the tokens of an ordinary leg.
	spent, computed, typical float64
	until                    time.Duration // when they stop to count
	nsPerByte                float64       // the mean time of a leg per byte of its body, 0 while that is not known
	marginal                 marginal
}

// SpeedNow is what picks read of a Speed, without a lock.
type SpeedNow struct {
	until             atomic.Int64  // until when it counts, on the fleet's clock
	perToken, typical atomic.Uint64 // each the bits of a float64
	marginal          atomic.Uint64 // likewise, 0 where only perToken is known
}

// completed is a prefill leg that was answered.
type completed struct {
	at     time.Duration // on the fleet's clock
	tokens int           // prompt tokens that prefill computed
}

// NewSpeed returns the speed of an engine without legs. It keeps shown up to date. clock is the time since the fleet was made.
func NewSpeed(shown *SpeedNow, clock func() time.Duration) *Speed {
	return &Speed{clock: clock, shown: shown}
}

// LearnLeg records a prefill leg that computed so many tokens of its prompt and was answered just now. The speed counts
// for a minute after the last leg.
//
// An engine shares its speed among its prompts, so a leg behind others takes as long as all of them. The sample is therefore the time of the leg
// over the tokens of all legs that were answered meanwhile, its own included. The mean is a quotient of sums, not a mean of quotients: a prompt
// of ten tokens takes a whole step of the engine, which says little. LearnLeg returns the sample, which is 0 if the leg says nothing.
func (s *Speed) LearnLeg(tokens int, took time.Duration) (computed int, during time.Duration) {
	if tokens <= 0 || took <= 0 {
		return 0, 0
	}
	now := s.clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	began, work := s.since(now-took, tokens)
	s.add(completed{now, tokens})
	if now >= s.until {
		s.spent, s.computed, s.marginal = 0, 0, marginal{}
		s.shown.marginal.Store(0)
	}
	s.until = now + SpeedFor
	s.spent = s.spent*speedWeight + float64(now-began)
	s.computed = s.computed*speedWeight + float64(work)
	if s.typical == 0 {
		s.typical = float64(tokens)
	}
	s.typical += (float64(tokens) - s.typical) / 5
	s.shown.until.Store(int64(s.until))
	s.shown.perToken.Store(math.Float64bits(s.spent / s.computed))
	s.shown.typical.Store(math.Float64bits(s.typical))
	return work, now - began
}

// LearnMarginal records a leg that did nothing but compute: it read no KV, its tokens are certain, and it waited for no other one.
func (s *Speed) LearnMarginal(tokens int, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown.marginal.Store(math.Float64bits(s.marginal.learn(float64(tokens), float64(took))))
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
	if len(s.legs) == maxCompleted {
		if oldest := s.legs[s.next]; oldest.at > began {
			return oldest.at, work - oldest.tokens
		}
	}
	return began, work
}

// add needs s.mu.
func (s *Speed) add(leg completed) {
	if len(s.legs) < maxCompleted {
		s.legs = append(s.legs, leg)
		return
	}
	s.legs[s.next] = leg
	s.next = (s.next + 1) % maxCompleted
}

// PerToken returns how many nanoseconds prefill takes per prompt token, 0 while that is not known.
func (s *SpeedNow) PerToken(now time.Duration) float64 {
	if int64(now) >= s.until.Load() {
		return 0
	}
	return math.Float64frombits(s.perToken.Load())
}

// Marginal returns how long prefill takes for one more token of a prompt, without what each leg costs by itself. It is PerToken where legs
// have not shown the difference, and 0 while that is not known.
func (s *Speed) Marginal() time.Duration {
	perToken := s.shown.PerToken(s.clock())
	if marginal := math.Float64frombits(s.shown.marginal.Load()); marginal > 0 && perToken > 0 {
		perToken = marginal
	}
	return time.Duration(perToken)
}

// Expects returns how long prefill takes for so many tokens, at the speed that legs have shown last, however long ago: 0 before the first. It
// is for limits. A pick has to try an engine anew that once seemed slow; a limit that forgets would end what works.
func (s *SpeedNow) Expects(tokens float64) time.Duration {
	return time.Duration(min(math.Float64frombits(s.perToken.Load())*tokens, float64(24*time.Hour)))
}

// Typical returns how many tokens an ordinary prefill leg computes, 0 while that is not known.
func (s *SpeedNow) Typical() float64 { return math.Float64frombits(s.typical.Load()) }

// LearnBody records a prefill leg that computed its prompt, so that a long prompt is not mistaken for an engine that
// never answers. Each leg moves the mean by a fifth, so it follows load within a few turns.
func (s *Speed) LearnBody(bytes int, took time.Duration) {
	if bytes == 0 {
		return
	}
	sample := float64(took) / float64(bytes)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nsPerByte > 0 {
		sample = s.nsPerByte + (sample-s.nsPerByte)/5
	}
	s.nsPerByte = sample
}

// Expect returns how long a prefill of a body of that size takes by the recent mean, 0 before the first leg.
func (s *Speed) Expect(bytes int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.nsPerByte * float64(bytes))
}
