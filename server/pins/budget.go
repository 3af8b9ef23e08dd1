package pins

import (
	"context"
	"slices"
	"time"

	"carryover/convcache"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

type rounds struct {
	stood  time.Time // the reading since which the engine runs nothing while requests wait; zero if it does not stand
	others []int     // the pinned tokens of the other replicas
	heard  time.Time // when they were received, zero for never
	read   time.Time // the engine's last reading
	then   int       // what this replica's tickets pinned at that reading
}

const (
	// maxLeaving is how many unused tickets may wait for their release while more are given up. No more can be released within a second.
	maxLeaving = 256
	// budgetEvery is how often the budget is checked, besides whenever a ticket exceeds it, and how often replicas exchange what they pin.
	budgetEvery = time.Second
	// standsFor is how long an engine must run nothing before tickets within their share are given up. Readings are seconds apart, and a request that
	// reads KV counts as waiting.
	standsFor = 3 * time.Second
	// fullAt is the percentage of a cache in use at which the cache is full for tickets. From there on, hand-backs spare an engine, too.
	fullAt = 90
)

func (p *Pins) candidates() (all []*holder) {
	p.lock()
	defer p.mu.Unlock()
	for _, engine := range p.deps.Fleet.Holders.All() {
		if h := p.holder(engine.Last()); h != nil {
			all = append(all, h)
		}
	}
	return all
}

// enforce is one round of the budget. On each engine whose tickets pin more than their share, it gives up the oldest ones.
func (p *Pins) enforce(ctx context.Context) {
	for _, h := range p.candidates() {
		engine := h.incarnation.Engine()
		most := p.Budget(engine)
		if most == 0 {
			continue
		}
		p.share(ctx, h)
		may, live := p.canRelease(h.incarnation), engine.Live()
		p.mu.Lock()
		keep := h.keep(live, most)
		h.hurried = h.hurried || h.tokens[stored]+h.tokens[due] > keep
		if may {
			p.giveUpOldest(h, keep, record.ReasonReleasedOverBudget)
		}
		p.mu.Unlock()
		p.takeLate(ctx)
	}
	p.releases(ctx)
}

// share exchanges with other replicas how many tokens each pins on an incarnation.
func (p *Pins) share(ctx context.Context, h *holder) {
	r, engine, now := &h.rounds, h.incarnation.Engine(), p.now()
	if p.deps.Shared == nil || now.Sub(r.heard) < budgetEvery {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, budgetEvery)
	defer cancel()
	if others, err := p.deps.Shared.SharePinned(bounded, engine.Name+" "+h.incarnation.ID(), p.Pinned(engine)); err == nil {
		r.others, r.heard = others, now
	}
}

// part returns this replica's part of a budget. others are the tokens that each other replica pins. Replicas that need less than an equal part leave
// the rest to those that need more. If all replicas keep to their parts, nothing is given up twice.
func part(most int, others []int) int {
	all := len(others) + 1
	for _, other := range slices.Sorted(slices.Values(others)) {
		if other >= most/all {
			break
		}
		most, all = most-other, all-1
	}
	return most / all
}

// keep returns how many tokens this replica's tickets may pin on an incarnation. That is its part of the budget. Half of the part is safe; above it,
// tickets get only what other KV leaves free of fullAt of the cache. While the cache is full and requests wait for memory, tickets get a quarter of
// the part. So tickets yield to running requests, and a peak of load does not cost all of them.
//
// On an engine that stands, each replica gives up half of its tickets for the requests that wait.
func (h *holder) keep(live fleet.Live, most int) (tokens int) {
	own, r, now := h.tokens[stored], &h.rounds, time.Now()
	if r.read != live.Read || r.read.IsZero() {
		r.read, r.then = live.Read, own
	}
	if r.stands(live) {
		return min(most, own/2)
	}
	keep := most
	if now.Sub(r.heard) < convcache.PinnedLife {
		keep = part(most, r.others)
	}
	inUse := int(live.Usage * float64(live.KVTokens))
	full := r.then + live.KVTokens*fullAt/100 - inUse
	switch {
	case full < r.then && live.Wanting() > 0:
		return keep / 4
	case full < keep:
		return max(full, keep/2)
	}
	return keep
}

// stands reports whether the engine has run nothing for standsFor while requests wait for memory. Requests that wait for KV from another engine don't
// count: memory does not help them. vLLM admits requests in order. If the first one was preempted, nothing runs that would free blocks, and the other
// requests keep theirs. Then only the blocks of tickets can be freed (v1/core/sched/scheduler.py).
func (r *rounds) stands(live fleet.Live) bool {
	switch {
	case live.Running > 0 || live.Wanting() == 0:
		r.stood = time.Time{}
	case r.stood.IsZero():
		r.stood = live.Read
	case live.Read.Sub(r.stood) >= standsFor:
		r.stood = live.Read
		return true
	}
	return false
}

// giveUpOldest gives up tickets until the rest pins at most keep tokens: always the oldest of the account that pins most. The caller holds p.mu.
func (p *Pins) giveUpOldest(h *holder, keep int, why string) (tickets int) {
	for h.tokens[stored] > keep && len(h.due)+len(p.late) < maxLeaving {
		n := h.stored.Most().Oldest().Value
		if len(p.gaveUp) >= maxGaveUp {
			clear(p.gaveUp)
		}
		p.gaveUp[n.Key] = why
		p.move(n, late)
		tickets++
	}
	return tickets
}

// canRelease reports whether a prefill instance can release tickets of this incarnation now. If none can, giving tickets up frees nothing.
func (p *Pins) canRelease(decode *fleet.Incarnation) bool {
	return slices.ContainsFunc(p.deps.Fleet.Engines(upstream.RolePrefill), func(prefill *fleet.Engine) bool {
		return !prefill.Quarantined() && prefill.Last().PairWith(decode).Releases()
	})
}

// handBackWithin bounds hand-backs on an engine that leaves. A leg takes 0.04 to 0.3 s (measured on vLLM 0.32), and each pair runs one at a time.
const handBackWithin = 3 * time.Second

// evacuate frees the blocks of this replica's tickets on decode engines that leave: an operator drains them, or a source has removed them. Until the
// last ticket is read or released, POST /pause and /sleep of such an engine do not answer, and its shutdown waits (measured on vLLM 0.33). That would
// take minutes if the tickets had to expire. Tickets are handed back for handBackWithin; then the rest is released.
func (p *Pins) evacuate() {
	for _, h := range p.candidates() {
		engine := h.incarnation.Engine()
		if !engine.Leaves() {
			h.leaving = time.Time{}
			continue
		}
		p.mu.Lock()
		if h.hurried = true; h.leaving.IsZero() {
			h.leaving = p.now()
		}
		tickets := 0
		if time.Since(h.leaving) >= handBackWithin {
			tickets = p.giveUpOldest(h, 0, record.ReasonInstanceGone)
		} else if h.tokens[stored] > 0 {
			for _, n := range p.pins {
				switch {
				case n.holder != h, n.state != stored, n.in != nil:
				case n.ids == nil:
					p.move(n, late)
				default:
					n.retreat = h.leaving
					p.schedule(n)
				}
			}
		}
		p.mu.Unlock()
		if tickets > 0 {
			p.cfg.Logger.Info("gave up the tickets of a decode instance that leaves", "decode", engine.Name, "tickets", tickets)
		}
	}
}
