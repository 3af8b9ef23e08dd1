package pins

import (
	"context"
	"slices"
	"time"

	"carryover/convcache"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

const (
	// runEvery is how often the runner looks for what is due; wake starts a round at once. Whether an instance takes hand-backs changes only when the
	// engines are read, every few seconds.
	runEvery = 250 * time.Millisecond
	// restsFor is how long a pair waits after a leg could not be sent. Engines are read every few seconds.
	restsFor = time.Second
	// patienceForLeg bounds a turn's waits for hand-backs of its conversation, all together. Legs took 0.04 to 0.3 s (measured on vLLM 0.32).
	patienceForLeg = 2 * time.Second
	// releaseAfter is how long a pin waits for a turn's prefill leg before a leg of our own releases it. Any pinned block makes an instance keep a core
	// busy (measured on vLLM 0.32).
	releaseAfter = 5 * time.Second
)

// Begin starts the tasks of these pins. repeat runs a round of each task every so often, and at once when early receives a value.
func (p *Pins) Begin(repeat func(task string, every time.Duration, early <-chan struct{}, round func(context.Context))) {
	if p.cfg.Release { // without it only turns may free blocks
		repeat("pinned budget", budgetEvery, p.over, p.enforce)
		repeat("release", runEvery, nil, func(ctx context.Context) {
			p.evacuate()
			p.takeLate(ctx)
			p.releases(ctx)
		})
	}
	if p.arena != nil {
		repeat("hand-back", runEvery, p.wake, func(ctx context.Context) {
			for _, q := range p.begin(p.now()) {
				p.deps.Background("hand-back", q.decode.Engine().Name, func() { p.handBack(ctx, q) })
			}
		})
	}
}

// takeLate takes late tickets out of the store. The store gives each ticket to one taker, so turns keep theirs.
func (p *Pins) takeLate(ctx context.Context) {
	for ctx.Err() == nil {
		p.lock()
		if len(p.late) == 0 {
			p.mu.Unlock()
			return
		}
		n := p.late[0]
		n.enlist(nil) // before the store may panic
		key, model := n.Key, n.Model
		p.mu.Unlock()
		if p.GiveUp(ctx, key, n.id, model) == convcache.Unavailable {
			return // that ticket is lost; the next ones wait until the store answers
		}
	}
}

// releases begins legs that release what is due, one at a time for each engine. Pins wait for turns' legs first.
func (p *Pins) releases(ctx context.Context) {
	var begun []*holder
	p.lock()
	for _, h := range p.holders {
		switch {
		case len(h.due) == 0:
			h.hurried = false
		case !h.releasing && (h.hurried || len(h.due) > p.cfg.ReleaseBacklog || upstream.Elapsed(h.due[0].since, p.now()) >= releaseAfter):
			h.releasing = true
			begun = append(begun, h)
		}
	}
	p.mu.Unlock()
	for _, h := range begun {
		engine := h.incarnation.Engine()
		p.deps.Background("release", engine.Name, func() {
			defer func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				h.releasing = false
			}()
			for ctx.Err() == nil && p.ReleaseOne(ctx, engine) {
			}
		})
	}
}

type pair struct{ prefill, decode *fleet.Incarnation }

// queue has the stored pins of a pair that are to be handed back, one leg at a time. Pins.mu guards it.
type queue struct {
	pair
	ready []*pin
	busy  bool      // a leg is under way
	over  func()    // ends prefill's count of the hand-back
	rests time.Time // no hand-back begins before this time
}

func (p *Pins) queue(prefill, decode *fleet.Incarnation) *queue {
	of := pair{prefill, decode}
	q := p.queues[of]
	if q == nil {
		q = &queue{pair: of}
		p.queues[of] = q
	}
	return q
}

// begin returns the queues whose next hand-back is due, and marks them busy until it has run.
func (p *Pins) begin(at time.Time) (all []*queue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pass(at)
	for of, q := range p.queues {
		switch {
		case q.busy:
		case len(q.ready) == 0:
			delete(p.queues, of)
		case p.open(q, at):
			q.busy = true
			all = append(all, q)
		}
	}
	return all
}

// HandBacks runs the next due hand-back of each pair in turn. It returns how many ran, and whether one of the tickets has to wait for another leg.
func (p *Pins) HandBacks(ctx context.Context, at time.Time) (begun int, again bool) {
	all := p.begin(at)
	for _, q := range all {
		again = p.handBack(ctx, q) || again
	}
	return len(all), again
}

// Await waits for running hand-backs of a conversation, mostly a tenth of a second. Afterwards prefill need not compute those tokens. If prefill
// cached them under other ids than it was sent, it is quarantined before the turn could read them. waited is how long the turn has waited before.
// Await returns the total, at most patienceForLeg.
func (p *Pins) Await(ctx context.Context, keys []convcache.Key, waited time.Duration) time.Duration {
	var legs []*underWay
	p.mu.Lock()
	for _, u := range p.underWay {
		if slices.Contains(keys, u.Key) {
			legs = append(legs, u)
		}
	}
	p.mu.Unlock()
	if len(legs) == 0 || waited >= patienceForLeg {
		return waited
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, patienceForLeg-waited)
	defer cancel()
	for _, u := range legs {
		select {
		case <-u.ended:
		case <-ctx.Done():
		}
	}
	return min(waited+time.Since(began), patienceForLeg)
}

// open reports whether a queue's next hand-back begins now, and counts it at prefill. If prefill will not take its tickets, they stay in
// the store until a turn uses them or they end: another prefill can read them. The caller holds p.mu.
func (p *Pins) open(q *queue, now time.Time) bool {
	engine, decode := q.prefill.Engine(), q.decode.Engine()
	switch {
	case now.Before(q.rests):
		return false
	case q.prefill.Over(), engine.Quarantined(), q.prefill.PrefixCache.Forgets() != "":
		for _, n := range slices.Clone(q.ready) {
			n.drop()
			p.move(n, stored)
		}
	case engine.Last() != q.prefill, decode.Last() != q.decode, q.prefill.StatusWith(q.decode) == pairs.NoReuse:
		// An engine that refused a connection usually answers again within seconds, and a stop of the pair ends.
	case q.prefill.StatusWith(q.decode) == pairs.Busy, !engine.TakesHandBack():
		return false
	default:
		q.over = engine.BeginHandBack()
		return true
	}
	q.rests = now.Add(restsFor)
	return false
}
