package pins

import (
	"context"
	"slices"
	"time"

	"carryover/convcache"
	"carryover/server/continuation"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

const (
	// runEvery is how often the runner looks for what is due; wake starts a round at once. Whether an instance takes hand-backs changes only when the
	// engines are read, every few seconds.
	runEvery = 250 * time.Millisecond
	// maxOut is how many tickets of a pair may wait for their hand-back outside of the store. Further ones are released: a pair that is so far behind
	// would pin decode's blocks for longer than the reuse is worth.
	maxOut = 256
	// restsFor is how long a pair waits after a leg could not be sent. Engines are read every few seconds.
	restsFor = time.Second
	// awayFor is how long tickets wait for an incarnation of prefill that does not answer, before they go to another instance. A restart of vLLM takes
	// longer, and loses the prompts in its cache.
	awayFor = 10 * time.Second
	// maxUnsent is how many hand-backs of a ticket without a conversation may fail unsent before it is released. Nothing else would end it.
	maxUnsent = 3
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
			p.run(ctx, continuation.Release)
		})
	}
	if p.arena != nil {
		repeat("hand-back", runEvery, p.wake, func(ctx context.Context) { p.run(ctx, continuation.HandBack) })
	}
}

// takeLate takes late tickets out of the store. Other replicas may have made them. The store gives each ticket to one taker, so turns keep theirs.
func (p *Pins) takeLate(ctx context.Context) {
	for ctx.Err() == nil {
		p.lock()
		if len(p.late) == 0 {
			p.mu.Unlock()
			return
		}
		n := p.late[0]
		n.enlist(nil) // before the store may panic
		was := *n
		p.mu.Unlock()
		if p.takeOut(ctx, &was) == convcache.Unavailable {
			return // that ticket is lost; the next ones wait until the store answers
		}
	}
}

type pair struct{ prefill, decode *fleet.Incarnation }

// queue has the pins that wait for legs of our own, one leg at a time: for hand-backs of a pair, or, if prefill is nil, for releases of an
// incarnation of decode. Pins.mu guards it.
type queue struct {
	pair
	due     []*pin    // their tickets are not in the store, so no turn can use them
	ready   []*pin    // stored pins that are to be handed back
	busy    bool      // a leg is under way
	hurried bool      // releases do not wait for a leg of a turn
	over    func()    // ends prefill's count of the hand-back
	rests   time.Time // no hand-back begins before this time
	seen    time.Time // when prefill answered last
}

func (p *Pins) queue(prefill, decode *fleet.Incarnation) *queue {
	of := pair{prefill, decode}
	q := p.queues[of]
	if q == nil {
		q = &queue{pair: of, seen: p.now()}
		p.queues[of] = q
	}
	return q
}

// begin returns the queues whose next hand-back or release is due, and marks them busy until leg has run.
func (p *Pins) begin(at time.Time, end continuation.End) (all []*queue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pass(at)
	for of, q := range p.queues {
		switch handsBack := of.prefill != nil; {
		case q.busy, handsBack != (end == continuation.HandBack):
		case len(q.due)+len(q.ready) == 0:
			if q.hurried = false; handsBack {
				delete(p.queues, of)
			}
		case p.open(q, at):
			q.busy = true
			all = append(all, q)
		}
	}
	return all
}

func (p *Pins) run(ctx context.Context, end continuation.End) {
	for _, q := range p.begin(p.now(), end) {
		p.deps.Background(end.String(), q.decode.Engine().Name, func() { p.leg(ctx, q) })
	}
}

// HandBacks runs the next due hand-back of each pair in turn. It returns how many ran, and whether one of the tickets has to wait for another leg.
func (p *Pins) HandBacks(ctx context.Context, at time.Time) (begun int, again bool) {
	all := p.begin(at, continuation.HandBack)
	for _, q := range all {
		again = p.leg(ctx, q) || again
	}
	return len(all), again
}

// leg runs a queue's next hand-back, or its releases. again says that a ticket has to wait for another leg.
func (p *Pins) leg(ctx context.Context, q *queue) (again bool) {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if q.busy = false; again {
			q.rests = p.now().Add(restsFor)
		}
		ask(p.wake)
	}()
	if q.prefill != nil {
		return p.handBack(ctx, q)
	}
	for ctx.Err() == nil && p.ReleaseOne(ctx, q.decode.Engine()) {
	}
	return false
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

// open reports whether a queue's next leg begins now, and counts a hand-back at prefill. Releases wait for turns' legs first. If the pair will be
// unable for long, its pins go to other queues. The caller holds p.mu.
func (p *Pins) open(q *queue, now time.Time) bool {
	if q.prefill == nil {
		return q.hurried || len(q.due) > p.cfg.ReleaseBacklog || upstream.Elapsed(q.due[0].since, now) >= releaseAfter
	}
	engine := q.prefill.Engine()
	gone := q.prefill.Over() || engine.Quarantined() || p.deps.Fleet.Engine(upstream.RolePrefill, engine.Name) != engine
	away := engine.Last() != q.prefill
	switch {
	case now.Before(q.rests):
		return false
	case q.decode.Over() || q.decode.Engine().Last() != q.decode: // an engine that refused a connection usually answers again within seconds
	case gone, away && now.Sub(q.seen) >= awayFor, !away && !q.serves():
		p.divert(q)
	case away:
	default:
		q.seen = now
		if q.prefill.StatusWith(q.decode) == pairs.Busy || !engine.TakesHandBack() {
			return false
		}
		q.over = engine.BeginHandBack()
		return true
	}
	q.rests = now.Add(restsFor)
	return false
}

// serves reports whether prefill reads decode's tickets, and keeps what it reads.
func (p pair) serves() bool {
	return p.prefill.StatusWith(p.decode) != pairs.NoReuse && p.prefill.PrefixCache.Forgets() == ""
}

// divert moves a queue's pins to the instances that their conversations' next turns will use. Without one, a ticket that is not in the store is
// released. The caller holds p.mu.
func (p *Pins) divert(q *queue) {
	for _, n := range slices.Concat(q.due, q.ready) {
		other := p.other(n, q)
		switch {
		case other != nil && n.state == due:
			n.Prefill = other
			p.move(n, due)
		case other != nil:
			n.Prefill = other
			n.enlist(&p.queue(other, n.Decode).ready)
		case n.state == due:
			p.due(n, n.ticket, continuation.Release)
		}
	}
}

// other returns the incarnation that the next turn of a pin's conversation will use, nil if there is none. The caller holds p.mu.
func (p *Pins) other(n *pin, q *queue) *fleet.Incarnation {
	if n.Key == (convcache.Key{}) {
		return nil
	}
	hint := fleet.Hint{Key: n.Affinity, Model: n.Model, Tokens: n.ids.Len()}
	engine, err := p.deps.Fleet.Choose(upstream.RolePrefill, hint, nil)
	if err != nil {
		return nil
	}
	last := engine.Last()
	if !last.Known() || last == q.prefill || engine.Quarantined() || !(pair{last, q.decode}).serves() {
		return nil
	}
	return last
}
