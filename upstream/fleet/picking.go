package fleet

import (
	"math"
	"time"

	"carryover/upstream"
)

// picking is what one pick after the other works with. The lists are kept between picks, and dropped when the engines change,
// so that nothing of one that is gone stays.
type picking struct {
	round      uint64 // of this pick
	candidates []upstream.Candidate
	engines    []*Engine      // of the candidates, by their index
	holders    []*Incarnation // of the conversation, where links are stopped
	spare      [][]*Engine    // empty lists, for picks that exclude engines
	speeds     speeds
}

// maxSpare bounds the spare lists: so many picks exclude engines at the same moment.
const maxSpare = 16

// borrow returns an empty list.
func (p *picking) borrow() []*Engine {
	n := len(p.spare)
	if n == 0 {
		return nil
	}
	list := p.spare[n-1]
	p.spare = p.spare[:n-1]
	return list
}

// giveBack takes a list back.
func (p *picking) giveBack(list []*Engine) {
	if cap(list) > 0 && len(p.spare) < maxSpare {
		clear(list)
		p.spare = append(p.spare, list[:0])
	}
}

// level is how choosy a pick is.
type level int

const (
	preferred level = iota // engines that are up
	answering              // that answer connections
	whatever               // all
)

// admits reports whether an engine may be picked at a level.
func (l level) admits(v *view, now time.Duration) bool {
	return l == whatever || l == answering && v.answers(now) || v.up(now)
}

// gather makes candidates of the engines that the level admits, and reports whether it left out one because it
// has as many attempts as it may.
func (p *picking) gather(engines []*Engine, role upstream.Role, ask asked, choosy level) (busy bool) {
	p.round++
	if cap(p.candidates) < len(engines) {
		p.candidates, p.engines = make([]upstream.Candidate, len(engines)), make([]*Engine, 0, len(engines))
	}
	p.candidates, p.engines, p.speeds = p.candidates[:len(engines)], p.engines[:0], speeds{now: ask.now}
	n := 0
	var same *modelSet
	serves := true
	for _, e := range engines {
		v := &e.seen
		if !choosy.admits(v, ask.now) || e.gone.Load() || ask.unbarred && e.Quarantined() {
			continue
		}
		if models := v.models.Load(); models != same { // mostly that of the engine before
			same, serves = models, models == nil || ask.model == "" || models.has(ask.model, p.round)
		}
		if !serves {
			continue
		}
		inFlight := int(e.inFlight.Load())
		if ask.most > 0 && inFlight >= ask.most {
			busy = true
			continue
		}
		e.at, e.round = int32(n), p.round
		p.engines = append(p.engines, e)
		// Field by field and in place: a candidate that is put together first takes four times as long to copy.
		c := &p.candidates[n]
		c.Instance, c.InFlight = e.Instance(), inFlight
		c.Others, c.Waiting, c.KVUsage = 0, 0, 0
		c.Delay, c.Holds, c.Prefix, c.Stopped = 0, 0, 0, false
		if int64(ask.now) < v.stale.Load() {
			c.Others, c.Waiting, c.KVUsage = int(v.others.Load()), int(v.waiting.Load()), math.Float64frombits(v.usage.Load())
		}
		if role == upstream.RolePrefill {
			c.Delay = p.speeds.delay(e, c, ask.tokens)
		}
		n++
	}
	p.candidates = p.candidates[:n]
	p.speeds.complete(p.candidates)
	return busy
}

// asked is what a pick asks of all candidates.
type asked struct {
	now      time.Duration
	model    string  // "" is served by all
	unbarred bool    // those that are barred are left out
	most     int     // attempts at once
	tokens   float64 // of this turn
}

// speeds are those of the candidates of a pick.
type speeds struct {
	now            time.Duration
	sum            float64
	known, unknown int
}

// delay returns how many nanoseconds prefill is expected to take for the tokens that are before this turn's, and for these. A
// request of others counts as one like those that the engine has answered. Where the speed is not known, it returns the tokens,
// as a negative number.
func (s *speeds) delay(e *Engine, c *upstream.Candidate, tokens float64) float64 {
	tokens += float64(e.queued.Load())
	if c.Others > 0 {
		tokens += float64(c.Others) * max(e.typical(), 1)
	}
	speed := e.perToken(s.now)
	if speed == 0 {
		s.unknown++
		return -tokens
	}
	s.sum, s.known = s.sum+speed, s.known+1
	return speed * tokens
}

// complete takes an engine whose speed is not known for one like the others; where none is known, nothing is told.
func (s *speeds) complete(candidates []upstream.Candidate) {
	if s.unknown == 0 {
		return
	}
	for i := range candidates {
		if c := &candidates[i]; c.Delay < 0 {
			c.Delay *= -s.mean()
		}
	}
}

// of returns the nanoseconds per token that a candidate was taken to need.
func (s *speeds) of(e *Engine) float64 {
	if speed := e.perToken(s.now); speed > 0 {
		return speed
	}
	return s.mean()
}

// mean is 0 if no speed is known.
func (s *speeds) mean() float64 { return s.sum / float64(max(s.known, 1)) }
