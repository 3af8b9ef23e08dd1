package fleet

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/prefixindex"
)

// picking is the current pick, and space that picks reuse. A change of the engines drops its lists, so that they refer to no engine that is
// gone.
type picking struct {
	mu              sync.Mutex // guards the rest, and the place of each engine. Lock order: Fleet, picking, Engine
	prefill, decode upstream.Policy
	most            int // attempts per engine; 0 means no limit

	clock      time.Duration // start of the pick, since the fleet was made
	round      uint64        // number of the pick, for the places of engines
	candidates []upstream.Candidate
	engines    []*Engine      // of each candidate, by index
	busy       bool           // an engine was left out because it is full
	holders    []*Incarnation // decode incarnations that hold the conversation, filled if pairs are stopped
	prompt     prompt
	mean       float64 // mean of the known speeds of candidates, 0 if none is known
}

// When drop returns, every pick that may still use a removed engine is over.
func (p *picking) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.candidates, p.engines, p.holders = nil, nil, nil
}

type level int

const (
	together  level = iota // decode engines that are up and read KV of some prefill engine
	preferred              // engines that are up
	answering              // engines that answer connections
	whatever               // all but silent engines
)

func (l level) admits(e *Engine, now time.Duration) bool {
	return (e.Health.Up(now) || l == whatever || l == answering && e.Health.Answers(now)) && !e.Health.Silent(now)
}

// gather makes the admitted engines candidates. A prefill candidate's delay is the expected time, in nanoseconds, for the tokens queued
// before this turn and for its own. An engine without a known speed gets the mean of the others; if none is known, all delays are 0.
func (p *picking) gather(role upstream.Role, engines []*Engine, hint *Hint, exclude func(*Engine) bool, choosy level) {
	p.round++
	if cap(p.candidates) < len(engines) {
		p.candidates, p.engines = make([]upstream.Candidate, len(engines)), make([]*Engine, 0, len(engines))
	}
	p.candidates, p.engines = p.candidates[:len(engines)], p.engines[:0]
	n, known, unknown, sum := 0, 0, 0, 0.0
	tokens, prefill := float64(max(hint.Tokens, 1)), role == upstream.RolePrefill
	var same *modelSet
	serves := true
	for _, e := range engines {
		if !choosy.admits(e, p.clock) || choosy == together && !e.fleet.reads(e) || prefill && !hint.AllowQuarantined && e.Quarantined() ||
			exclude != nil && exclude(e) || e.gone.Load() {
			continue
		}
		if models := e.served.Load(); models != same { // mostly the list of the engine before
			same, serves = models, models.serves(hint.Model)
		}
		if !serves {
			continue
		}
		inFlight := int(e.inFlight.Load())
		if p.most > 0 && inFlight >= p.most {
			p.busy = choosy != together
			continue
		}
		e.place = prefixindex.Place{At: int32(n), Round: p.round}
		p.engines = append(p.engines, e)
		// The fields are set in place: copying a candidate takes four times as long.
		c := &p.candidates[n]
		c.Instance, c.InFlight = e.Instance(), inFlight
		c.Others, c.Waiting, c.KVUsage = 0, 0, 0
		c.Delay, c.Holds, c.Prefix, c.Stopped = 0, 0, 0, false
		if l := e.load.Load(); l.counts(p.clock) {
			c.Others, c.Waiting, c.KVUsage = l.Others, l.Waiting, l.Usage
		}
		c.Others += int(e.failed.Load())
		if prefill {
			c.Delay = tokens + e.ahead(c.Others)
			if speed := e.Speed.PerToken(p.clock); speed > 0 {
				c.Delay, sum, known = c.Delay*speed, sum+speed, known+1
			} else {
				c.Delay, unknown = -c.Delay, unknown+1
			}
		}
		n++
	}
	p.candidates, p.mean = p.candidates[:n], sum/float64(max(known, 1))
	for i := 0; unknown > 0 && i < n; i++ {
		if c := &p.candidates[i]; c.Delay < 0 {
			c.Delay *= -p.mean
		}
	}
}

func (p *picking) speed(e *Engine) float64 {
	return cmp.Or(e.Speed.PerToken(p.clock), p.mean)
}

// Credit marks a candidate that need not compute some pieces. The prefix index calls it.
func (p *picking) Credit(place *prefixindex.Place, pieces int) {
	if place.Round != p.round {
		return
	}
	if c := &p.candidates[place.At]; c.Prefix == 0 {
		c.Prefix = pieces
		if c.Delay > 0 {
			c.Delay -= p.speed(p.engines[place.At]) * p.prompt.spares(float64(pieces)*p.prompt.perPiece)
		}
	}
}

// Each pick asks whether all pairs of a candidate are stopped, and there may be a million pairs. So each incarnation
// and the fleet count stopped pairs. While the fleet's count is 0, which is nearly always, picks skip the question;
// else they look only at pairs of incarnations that have stopped ones. A pair whose stop is over still counts until it
// answers or is dropped, so the counts are upper bounds.

// markStopped marks decode candidates whose pairs with all prefill engines are stopped, or prefill candidates whose pairs with all holders
// of the conversation are stopped. It does not mark a candidate without pairs. It needs picking.mu.
func (f *Fleet) markStopped(role upstream.Role, hint *Hint) {
	p, members := &f.picking, f.members.Load()
	p.holders = p.holders[:0]
	if role == upstream.RoleDecode {
		for _, e := range members.engines[upstream.RolePrefill] {
			p.holders = append(p.holders, e.last.Load())
		}
	} else {
		for i := range hint.Holds {
			if e := members.named[upstream.RoleDecode][hint.Holds[i].Instance]; e != nil && e.Health.Answers(p.clock) && hint.Holds[i].on(e.last.Load()) {
				p.holders = append(p.holders, e.last.Load())
			}
		}
	}
	for i, e := range p.engines {
		last := e.last.Load()
		p.candidates[i].Stopped = len(p.holders) > 0 && last.Known() && last.stops.Load() > 0 &&
			!slices.ContainsFunc(p.holders, func(other *Incarnation) bool {
				if role == upstream.RoleDecode {
					return !other.Known() || !other.known(last).Stopped()
				}
				return !last.known(other).Stopped()
			})
	}
	clear(p.holders)
}

func (f *Fleet) reads(decode *Engine) bool {
	prefills, last := f.Engines(upstream.RolePrefill), decode.Last()
	return int(f.stops.Load()) < len(prefills) ||
		slices.ContainsFunc(prefills, func(e *Engine) bool { return !e.Last().ApartFrom(last) })
}
