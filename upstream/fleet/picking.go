package fleet

import (
	"math"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/prefixindex"
)

// picking is the scratch space of picks, which run one at a time. Its lists are kept between picks and dropped when
// the engines change, so that they refer to no engine that is gone.
type picking struct {
	round      uint64 // number of the pick
	candidates []upstream.Candidate
	engines    []*Engine      // the engine of each candidate, by index
	holders    []*Incarnation // decode incarnations that hold the conversation, filled if pairs are stopped
	spare      [][]*Engine    // empty lists for picks that exclude engines
	speeds     speeds
	prompt     prompt // of the turn, for credits
}

// maxSpare bounds the spare lists: more picks than this rarely exclude engines at the same moment.
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

// giveBack returns a borrowed list.
func (p *picking) giveBack(list []*Engine) {
	if cap(list) > 0 && len(p.spare) < maxSpare {
		clear(list)
		p.spare = append(p.spare, list[:0])
	}
}

// level says which engines a pick considers.
type level int

const (
	preferred level = iota // engines that are up
	answering              // engines that answer connections
	whatever               // all engines but those that are silent
)

// admits reports whether an engine may be picked at this level.
func (l level) admits(v *view, now time.Duration) bool {
	return !v.health.Silent(now) && (l == whatever || l == answering && v.health.Answers(now) || v.health.Up(now))
}

// gather makes the admitted engines candidates. It reports whether it left out an engine because that has as many
// attempts as it may.
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
		if !choosy.admits(v, ask.now) || e.member.gone.Load() || ask.avoidQuarantined && e.Quarantined() ||
			ask.reads != nil && !ask.reads(e) {
			continue
		}
		if models := v.models.Load(); models != same { // the same list as the engine before, mostly
			same, serves = models, models == nil || ask.model == "" || models.has(ask.model, p.round)
		}
		if !serves {
			continue
		}
		inFlight := int(e.attempts.inFlight.Load())
		if ask.most > 0 && inFlight >= ask.most {
			busy = true
			continue
		}
		e.seen.place = prefixindex.Place{At: int32(n), Round: p.round}
		p.engines = append(p.engines, e)
		// The fields are set in place: to build a candidate and copy it takes four times as long.
		c := &p.candidates[n]
		c.Instance, c.InFlight = e.Instance(), inFlight
		c.Others, c.Waiting, c.KVUsage = 0, 0, 0
		c.Delay, c.Holds, c.Prefix, c.Stopped = 0, 0, 0, false
		if int64(ask.now) < v.stale.Load() {
			c.Others, c.Waiting, c.KVUsage = int(v.others.Load()), int(v.waiting.Load()), math.Float64frombits(v.usage.Load())
		}
		c.Others += int(e.attempts.failed.Load())
		if role == upstream.RolePrefill {
			c.Delay = p.speeds.delay(e, c, ask.tokens)
		}
		n++
	}
	p.candidates = p.candidates[:n]
	p.speeds.complete(p.candidates)
	return busy
}

// asked is what a pick requires of all candidates.
type asked struct {
	now              time.Duration
	model            string                    // "" allows all
	avoidQuarantined bool                      // leave out quarantined engines
	most             int                       // maximum of attempts at once
	tokens           float64                   // prompt tokens of this turn
	reads            func(decode *Engine) bool // leave out engines of which it says no, nil for none
}

// speeds are the prefill speeds of a pick's candidates.
type speeds struct {
	now            time.Duration
	sum            float64
	known, unknown int
}

// delay returns how many nanoseconds prefill is expected to take for the tokens queued before this turn and for this
// turn's. A request of other clients counts like an ordinary leg of that engine. Where the speed is not known, delay
// returns minus the number of tokens.
func (s *speeds) delay(e *Engine, c *upstream.Candidate, tokens float64) float64 {
	tokens += e.ahead(c.Others)
	speed := e.seen.speed.PerToken(s.now)
	if speed == 0 {
		s.unknown++
		return -tokens
	}
	s.sum, s.known = s.sum+speed, s.known+1
	return speed * tokens
}

// ahead returns the prompt tokens that the engine has to compute for our attempts and for requests of others.
func (e *Engine) ahead(others int) float64 {
	return float64(e.attempts.queued.Load()) + float64(others)*max(e.seen.speed.Typical(), 1)
}

// ExpectPrefill returns how long a prefill leg that was picked is expected to take, behind those that are queued, 0 while no leg has shown that.
func (e *Engine) ExpectPrefill() time.Duration {
	return e.seen.speed.Expects(e.ahead(e.latest().Others))
}

// complete gives engines without a known speed the mean of the others. If no speed is known, it clears all delays.
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

// of returns the nanoseconds per token that were assumed for a candidate.
func (s *speeds) of(e *Engine) float64 {
	if speed := e.seen.speed.PerToken(s.now); speed > 0 {
		return speed
	}
	return s.mean()
}

// mean is 0 if no speed is known.
func (s *speeds) mean() float64 { return s.sum / float64(max(s.known, 1)) }

// Credit tells the policy that an engine, if it is a candidate, need not compute so many pieces. It is called by the
// prefix index.
func (p *picking) Credit(place *prefixindex.Place, pieces int) {
	if place.Round != p.round {
		return
	}
	if c := &p.candidates[place.At]; c.Prefix == 0 {
		c.Prefix = pieces
		if c.Delay > 0 {
			c.Delay -= p.speeds.of(p.engines[place.At]) * p.prompt.spares(float64(pieces)*p.prompt.perPiece)
		}
	}
}
