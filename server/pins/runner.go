package pins

import (
	"container/list"
	"context"
	"time"

	"carryover/convcache"
	"carryover/server/continuation"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// Task is work that has to be done again and again while the program serves.
type Task struct {
	Name  string
	Every time.Duration
	Early <-chan struct{} // a value calls for a round at once; it may be nil
	Round func(context.Context)
}

const (
	// runEvery is how often the runner looks for what is due, besides whenever it is asked to. Whether an instance takes hand-backs changes
	// only when the engines are read, every few seconds.
	runEvery = 250 * time.Millisecond
	// maxOut is how many tickets of a pair may wait for their hand-back outside of the store. Further ones are released, because a pair that
	// is so far behind would pin decode's blocks for longer than the reuse is worth.
	maxOut = 256
	// restsFor is how long a pair waits after a leg could not be sent. Engines are read every few seconds.
	restsFor = time.Second
	// awayFor is how long tickets wait for an incarnation of prefill that does not answer, before they go to another instance. A restart of
	// vLLM takes longer, and loses the prompts in its cache.
	awayFor = 10 * time.Second
	// maxUnsent is how many hand-backs of a ticket without a conversation may fail unsent before it is released. Nothing else would end it.
	maxUnsent = 3
	// patienceForLeg is how long a turn waits for hand-backs of its conversation, in all its attempts and under all its keys. Legs took 0.04 to
	// 0.3 s (measured on vLLM 0.32).
	patienceForLeg = 2 * time.Second
	// releaseAfter is how long a pin waits for a turn's prefill leg that can carry its release, before a leg of our own does. Any pinned block
	// makes an instance keep a core busy (measured on vLLM 0.32).
	releaseAfter = 5 * time.Second
)

// Tasks lists the tasks; only one goroutine may run each.
func (p *Pins) Tasks() (all []Task) {
	if p.cfg.Release { // without it only turns may free blocks
		all = append(all,
			Task{Name: "pinned budget", Every: budgetEvery, Early: p.over, Round: p.enforce},
			Task{Name: "release", Every: runEvery, Round: p.round})
	}
	if p.arena != nil {
		all = append(all, Task{Name: "hand-back", Every: runEvery, Early: p.wake, Round: func(ctx context.Context) {
			p.HandBacks(ctx, p.now(), func(decode string, leg func() (again bool)) {
				p.deps.Background("hand-back", decode, func() { leg() })
			})
		}})
	}
	return all
}

// round frees what is due for its release.
func (p *Pins) round(ctx context.Context) {
	p.evacuate(ctx)
	p.releaseLate(ctx, p.now())
	p.workOff(ctx)
}

// releaseLate takes the tickets out of the store whose time to be released has come. What another replica has made may be there still.
func (p *Pins) releaseLate(ctx context.Context, now time.Time) {
	for ctx.Err() == nil {
		p.mu.Lock()
		p.pass(now)
		first := p.late.Front()
		if first == nil {
			p.mu.Unlock()
			return
		}
		n := first.Value.(*pin)
		p.enlist(n, nil) // before the store may panic
		n.retire = time.Time{}
		p.schedule(n)
		was := *n
		p.mu.Unlock()
		p.takeOut(ctx, &was, continuation.Release, "")
	}
}

// workOff has legs of our own free the blocks whose release no turn has carried, one after the other for each decode engine.
func (p *Pins) workOff(ctx context.Context) {
	p.mu.Lock()
	now := p.now()
	p.pass(now)
	var all []*holder
	for _, h := range p.holders {
		n := h.due.Len()
		if h.hurried = h.hurried && n > 0; n > 0 && !h.releasing &&
			(h.hurried || n > p.cfg.ReleaseBacklog || upstream.Elapsed(h.due.Front().Value.(*pin).since, now) >= releaseAfter) {
			h.releasing = true
			all = append(all, h)
		}
	}
	p.mu.Unlock()
	for _, h := range all {
		p.deps.Background("release", h.incarnation.Engine().Name, func() {
			defer func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				h.releasing = false
			}()
			for ctx.Err() == nil && p.ReleaseOne(ctx, h.incarnation.Engine()) {
			}
		})
	}
}

// pair is an incarnation of prefill and one of decode.
type pair struct{ prefill, decode *fleet.Incarnation }

// queue is the hand-backs of a pair, of which one leg runs at a time. Pins.mu guards it.
type queue struct {
	pair
	out   list.List // pins whose tickets are not in the store, so that no turn can use them
	ready list.List // pins whose tickets are
	busy  bool      // a leg is under way
	rests time.Time // no leg begins before this time
	away  time.Time // since when prefill can't be sent legs, zero while it can
}

// queue returns the queue of a pair. The caller holds p.mu.
func (p *Pins) queue(of pair) *queue {
	l := p.queues[of]
	if l == nil {
		l = &queue{pair: of}
		p.queues[of] = l
	}
	return l
}

// all lists the pins of a queue in the order of their legs.
func (l *queue) all() (all []*pin) {
	for _, from := range []*list.List{&l.out, &l.ready} {
		for at := from.Front(); at != nil; at = at.Next() {
			all = append(all, at.Value.(*pin))
		}
	}
	return all
}

// underWay counts the hand-backs of one conversation that run now.
type underWay struct {
	legs  int
	ended chan struct{} // closed with the last of them
}

// HandBacks has run start each hand-back that is due at a time: it calls leg once, which returns when its leg has ended, and reports whether
// the ticket waits for another one. decode names the instance.
func (p *Pins) HandBacks(ctx context.Context, at time.Time, run func(decode string, leg func() (again bool))) (begun int) {
	if p.arena == nil {
		return 0
	}
	p.mu.Lock()
	p.pass(at)
	var legs []func() bool
	var names []string
	for of, l := range p.queues {
		switch {
		case l.busy:
			continue
		case l.out.Len()+l.ready.Len() == 0:
			delete(p.queues, of)
			continue
		case at.Before(l.rests), !p.open(l, at), l.out.Len()+l.ready.Len() == 0, !l.prefill.Engine().TakesHandBack():
			continue
		}
		names, legs = append(names, l.decode.Engine().Name), append(legs, p.begin(ctx, l))
	}
	p.mu.Unlock()
	for i, leg := range legs {
		run(names[i], leg)
	}
	return len(legs)
}

// begin takes the first pin of a queue for a leg, which the returned function runs. The caller holds p.mu.
func (p *Pins) begin(ctx context.Context, l *queue) (leg func() (again bool)) {
	first, next := l.ready.Front(), stored
	if l.out.Len() > 0 {
		first, next = l.out.Front(), claimed
	}
	n := first.Value.(*pin)
	was := *n
	n.back, n.retreat = nil, time.Time{} // the leg has the ids
	p.move(n, next)
	under := p.legs[was.key]
	if under == nil {
		under = &underWay{ended: make(chan struct{})}
	}
	if under.legs++; was.homed() {
		p.legs[was.key] = under
	}
	l.busy = true
	over := l.prefill.Engine().BeginHandBack()
	return func() (again bool) {
		defer func() {
			over()
			p.mu.Lock()
			defer p.mu.Unlock()
			if l.busy = false; again {
				l.rests = p.now().Add(restsFor)
			}
			if under.legs--; under.legs == 0 {
				delete(p.legs, was.key)
				close(under.ended)
			}
			ask(p.wake)
		}()
		return p.handBack(ctx, l.pair, n, &was)
	}
}

// Await waits for the hand-backs of a conversation that run now, mostly a tenth of a second. A turn that has waited for some time before waits
// for the rest of patienceForLeg at most; Await returns for how long it has waited now. Afterwards prefill need not compute what was handed
// back. And if prefill cached it under other ids than it was sent, it is quarantined before the turn could read that.
func (p *Pins) Await(ctx context.Context, keys []convcache.Key, waited time.Duration) time.Duration {
	var legs []*underWay
	p.mu.Lock()
	for _, key := range keys {
		if under := p.legs[key]; under != nil {
			legs = append(legs, under)
		}
	}
	p.mu.Unlock()
	if len(legs) == 0 || waited >= patienceForLeg {
		return waited
	}
	began, limit := p.now(), time.NewTimer(patienceForLeg-waited)
	defer limit.Stop()
	for _, under := range legs {
		select {
		case <-under.ended:
		case <-limit.C:
			return patienceForLeg
		case <-ctx.Done():
		}
	}
	return waited + time.Since(began)
}

// open reports whether a pair may be sent a hand-back now. If it will be unable for long, its pins go to other queues; otherwise they wait. The
// caller holds p.mu.
func (p *Pins) open(l *queue, now time.Time) bool {
	engine := l.prefill.Engine()
	gone := l.prefill.Over() || engine.Quarantined() || p.deps.Fleet.Engine(upstream.RolePrefill, engine.Name) != engine
	switch {
	case l.decode.Over() || l.decode.Engine().Last() != l.decode: // an engine that refused a connection usually answers again within seconds
		l.rests = now.Add(restsFor)
		return false
	case gone || engine.Last() != l.prefill:
		if l.away.IsZero() {
			l.away = now
		}
		if gone || now.Sub(l.away) >= awayFor {
			p.divert(l)
		}
		l.rests = now.Add(restsFor)
		return false
	}
	l.away = time.Time{}
	status := l.prefill.StatusWith(l.decode)
	if status == pairs.NoReuse || l.prefill.PrefixCache.Forgets() != "" { // the pair will be tried again later
		p.divert(l)
		l.rests = now.Add(restsFor)
		return false
	}
	return status != pairs.Busy
}

// divert moves the pins of a queue to the instance to which their conversations' next turns will be sent. Without one, a ticket that is not in
// the store is released. The caller holds p.mu.
func (p *Pins) divert(l *queue) {
	for _, n := range l.all() {
		switch other := p.other(n, l); {
		case other != nil:
			n.back.pair = other.pair
			if n.state == due {
				p.enlist(n, &other.out)
			} else {
				p.enlist(n, &other.ready)
			}
		case n.state == due:
			p.due(n, n.ticket, continuation.Release)
		}
	}
}

// other returns the queue to the instance to which the next turn of a pin's conversation will be sent, nil if there is none. The caller holds p.mu.
func (p *Pins) other(n *pin, l *queue) *queue {
	if !n.homed() {
		return nil
	}
	hint := fleet.Hint{Key: n.back.affinity, Model: n.model, Tokens: n.back.ids.Len()}
	engine, err := p.deps.Fleet.Choose(upstream.RolePrefill, hint, nil)
	if err != nil {
		return nil
	}
	last := engine.Last()
	if !last.Known() || last == l.prefill || engine.Quarantined() || last.StatusWith(l.decode) == pairs.NoReuse || last.PrefixCache.Forgets() != "" {
		return nil
	}
	return p.queue(pair{last, l.decode})
}
