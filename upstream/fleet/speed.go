package fleet

import (
	"math"
	"time"
)

// How speed is learnt.
const (
	speedWeight  = 0.8 // of all earlier samples at each new one: a change shows after five legs
	maxCompleted = 32  // legs that are remembered, so that later ones can tell what ran beside them
	// speedFor is how long a speed counts after the last leg. An engine that is taken for a slow one gets few legs or none, and
	// what made it slow, such as a first leg for which kernels were compiled, would be held against it for ever.
	speedFor = time.Minute
)

// completed is a prefill leg that has been answered.
type completed struct {
	at     time.Duration // on the fleet's clock
	tokens int           // of its prompt, those that prefill computed
}

// speed is how fast an engine computes prompts. habits.mu guards it.
type speed struct {
	legs []completed // in the order of their answers, the oldest at next once there are maxCompleted
	next int
	// Time and tokens of the samples, earlier ones fading; and of an ordinary leg, its tokens.
	spent, computed, typical float64
	until                    time.Duration // they count
}

// LearnSpeed records a prefill leg that computed so many tokens of its prompt, and was answered just now. It is remembered over
// restarts, because it is that of the machine, and for a minute after the last leg.
//
// An engine shares its speed among the prompts that it has, so that a leg behind others takes as long as all of them. The
// sample is therefore the time that the leg took over the tokens of all legs that were answered meanwhile, its own included.
// The mean is one of sums, not of quotients: a prompt of ten tokens takes a whole step of the engine, which says little.
func (s *Incarnation) LearnSpeed(tokens int, took time.Duration) {
	if tokens <= 0 || took <= 0 {
		return
	}
	now := s.engine.fleet.clock()
	h := &s.engine.habits
	h.mu.Lock()
	defer h.mu.Unlock()
	began, work := h.speed.since(now-took, tokens)
	h.speed.add(completed{now, tokens})
	sp := &h.speed
	if now >= sp.until {
		sp.spent, sp.computed = 0, 0
	}
	sp.until = now + speedFor
	sp.spent = sp.spent*speedWeight + float64(now-began)
	sp.computed = sp.computed*speedWeight + float64(work)
	if sp.typical == 0 {
		sp.typical = float64(tokens)
	}
	sp.typical += (float64(tokens) - sp.typical) / 5
	s.engine.spedUntil.Store(int64(sp.until))
	s.engine.nsPerToken.Store(math.Float64bits(sp.spent / sp.computed))
	s.engine.typicalLeg.Store(math.Float64bits(sp.typical))
}

// since returns how many tokens were computed from the time on at which a leg of so many began, or from the oldest answer on
// that is remembered, and when that was.
func (s *speed) since(began time.Duration, tokens int) (from time.Duration, work int) {
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

func (s *speed) add(leg completed) {
	if len(s.legs) < maxCompleted {
		s.legs = append(s.legs, leg)
		return
	}
	s.legs[s.next] = leg
	s.next = (s.next + 1) % maxCompleted
}

// perToken returns how many nanoseconds a token of a prompt takes, 0 while that is not known.
func (e *Engine) perToken(now time.Duration) float64 {
	if int64(now) >= e.spedUntil.Load() {
		return 0
	}
	return math.Float64frombits(e.nsPerToken.Load())
}

// typical returns how many tokens an ordinary prefill leg computes, 0 while that is not known.
func (e *Engine) typical() float64 { return math.Float64frombits(e.typicalLeg.Load()) }
