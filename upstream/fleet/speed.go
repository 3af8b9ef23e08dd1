package fleet

import (
	"math"
	"time"
)

// How the speed is learnt.
const (
	speedWeight  = 0.8 // weight of all earlier samples at each new one: a change shows after five legs
	maxCompleted = 32  // legs that are remembered to tell what ran beside a later one
	// speedFor is how long a speed counts after the last leg. Without this limit, an engine that seems slow would get
	// few legs and could never show that it is fast again, although a first leg for which kernels were compiled may be
	// all that made it slow.
	speedFor = time.Minute
)

// completed is a prefill leg that was answered.
type completed struct {
	at     time.Duration // on the fleet's clock
	tokens int           // prompt tokens that prefill computed
}

// speed is how fast an engine computes prompts. habits.mu guards it.
type speed struct {
	legs []completed // in the order of their answers; with maxCompleted of them, the oldest is at next
	next int
	// spent and computed are the fading sums of the samples' time and tokens; typical is the tokens of an ordinary
	// leg.
	spent, computed, typical float64
	until                    time.Duration // when they stop to count
}

// LearnSpeed records a prefill leg that computed so many tokens of its prompt and was answered just now. The speed
// belongs to the machine, so it outlasts restarts; it counts for a minute after the last leg.
//
// An engine shares its speed among its prompts, so a leg behind others takes as long as all of them. The sample is
// therefore the time of the leg over the tokens of all legs that were answered meanwhile, its own included. The mean
// is a quotient of sums, not a mean of quotients: a prompt of ten tokens takes a whole step of the engine, which says
// little.
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

// since returns how many tokens were computed since a leg of tokens tokens began. If more legs were answered meanwhile
// than are remembered, it counts from the oldest one that is; from says since when.
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

// perToken returns how many nanoseconds prefill takes per prompt token, 0 while that is not known.
func (e *Engine) perToken(now time.Duration) float64 {
	if int64(now) >= e.spedUntil.Load() {
		return 0
	}
	return math.Float64frombits(e.nsPerToken.Load())
}

// typical returns how many tokens an ordinary prefill leg computes, 0 while that is not known.
func (e *Engine) typical() float64 { return math.Float64frombits(e.typicalLeg.Load()) }
