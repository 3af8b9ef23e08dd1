package pins

import (
	"context"
	"slices"
	"time"

	"carryover/convcache"
	"carryover/upstream"
)

const (
	// runEvery is how often the runner looks for what is due; wake starts a round at once. Whether an instance takes hand-backs changes only when the
	// engines are read, every few seconds.
	runEvery = 250 * time.Millisecond
	// restsFor is how long a ticket waits after its leg could not be sent. Engines are read every few seconds.
	restsFor = time.Second
	// patienceForLeg is how long after the beginning of a hand-back turns of its conversation wait for it. Legs took 0.04 to 0.3 s (measured on vLLM 0.32).
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
		repeat("hand-back", runEvery, p.wake, func(ctx context.Context) { p.HandBacks(ctx, p.now()) })
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

// HandBacks begins the hand-backs that are due at a time, one for each pair, and returns how many.
func (p *Pins) HandBacks(ctx context.Context, at time.Time) int {
	all := p.begin(at)
	for _, u := range all {
		p.deps.Background("hand-back", u.Decode.Engine().Name, func() { p.handBack(ctx, u) })
	}
	return len(all)
}

// Await waits for running hand-backs of a conversation, mostly a tenth of a second. Afterwards prefill need not compute those tokens. If prefill
// cached them under other ids than it was sent, it is quarantined before the turn could read them. A hand-back is waited for until patienceForLeg after
// its beginning, so a turn that asks several times waits no longer.
func (p *Pins) Await(ctx context.Context, keys []convcache.Key) {
	p.mu.Lock()
	legs := slices.Clone(p.underWay)
	p.mu.Unlock()
	for _, u := range legs {
		if !slices.Contains(keys, u.Key) {
			continue
		}
		select {
		case <-u.ended:
		case <-ctx.Done():
		case <-time.After(patienceForLeg - time.Since(u.began)):
		}
	}
}
