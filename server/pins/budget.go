package pins

import (
	"context"
	"maps"
	"slices"
	"time"

	"carryover/convcache"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

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

// enforce is one round of the budget. On each engine whose tickets pin more than their share, it gives up the oldest ones.
func (p *Pins) enforce(ctx context.Context) {
	p.lock()
	holders := slices.Collect(maps.Values(p.holders))
	p.mu.Unlock()
	for _, h := range holders {
		engine := h.incarnation.Engine()
		most := p.Budget(engine)
		if most == 0 {
			continue
		}
		p.share(ctx, h)
		live := engine.Live()
		p.mu.Lock()
		keep := h.keep(live, most)
		h.hurried = h.hurried || h.tokens[stored]+h.tokens[due] > keep
		if own := h.tokens[stored]; p.releasable(h) {
			if p.giveUpOldest(h, keep); h.tokens[stored] < own && time.Since(h.told) >= time.Minute {
				h.told = time.Now()
				p.cfg.Logger.Info("released the oldest tickets, for room in the KV cache", "decode", engine.Name, "share", p.cfg.PinnedShare)
			}
		}
		p.mu.Unlock()
		p.takeLate(ctx)
	}
	p.releases(ctx)
}

// releasable reports whether a prefill instance can release blocks of an incarnation now. If none can, giving tickets up frees nothing.
func (p *Pins) releasable(h *holder) bool {
	return slices.ContainsFunc(p.deps.Fleet.Engines(upstream.RolePrefill), func(prefill *fleet.Engine) bool {
		return !prefill.Quarantined() && prefill.Last().PairWith(h.incarnation).Releases()
	})
}

// share exchanges with other replicas how many tokens each pins on an incarnation.
func (p *Pins) share(ctx context.Context, h *holder) {
	engine, now := h.incarnation.Engine(), p.now()
	if p.deps.Shared == nil || now.Sub(h.heard) < budgetEvery {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, budgetEvery)
	defer cancel()
	if others, err := p.deps.Shared.SharePinned(bounded, engine.Name+" "+h.incarnation.ID(), p.Pinned(engine)); err == nil {
		h.others, h.heard = others, now
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
	own := h.tokens[stored]
	if h.read != live.Read || h.read.IsZero() {
		h.read, h.then = live.Read, own
	}
	if h.stands(live) {
		return min(most, own/2)
	}
	keep := most
	if time.Since(h.heard) < convcache.PinnedLife {
		keep = part(most, h.others)
	}
	full := h.then + live.KVTokens*fullAt/100 - int(live.Usage*float64(live.KVTokens))
	if full < h.then && live.Wanting() > 0 {
		return keep / 4
	}
	return min(keep, max(full, keep/2))
}

// stands reports whether the engine has run nothing for standsFor while requests wait for memory. Requests that wait for KV from another engine don't
// count: memory does not help them. vLLM admits requests in order. If the first one was preempted, nothing runs that would free blocks, and the other
// requests keep theirs. Then only the blocks of tickets can be freed (v1/core/sched/scheduler.py).
func (h *holder) stands(live fleet.Live) bool {
	switch {
	case live.Running > 0 || live.Wanting() == 0:
		h.stood = time.Time{}
	case h.stood.IsZero():
		h.stood = live.Read
	case live.Read.Sub(h.stood) >= standsFor:
		h.stood = live.Read
		return true
	}
	return false
}

// giveUpOldest gives up tickets until the rest pins at most keep tokens: always the oldest of the account that pins most. The caller holds p.mu.
func (p *Pins) giveUpOldest(h *holder, keep int) {
	for h.tokens[stored] > keep && len(h.due)+len(p.late) < maxLeaving {
		p.giveUp(h.stored.Most().Oldest().Value, record.ReasonReleasedOverBudget)
	}
}

// handBackWithin bounds hand-backs on an engine that leaves. A leg takes 0.04 to 0.3 s (measured on vLLM 0.32), and each pair runs one at a time.
const handBackWithin = 3 * time.Second

// evacuate frees the blocks of this replica's tickets on decode engines that leave: an operator drains them, or a source has removed them. Until the
// last ticket is read or released, POST /pause and /sleep of such an engine do not answer, and its shutdown waits (measured on vLLM 0.33). That would
// take minutes if the tickets had to expire. Tickets are handed back for handBackWithin; then the rest is released.
func (p *Pins) evacuate() {
	p.lock()
	defer p.mu.Unlock()
	for _, h := range p.holders {
		if !h.incarnation.Engine().Leaves() {
			h.leaving = time.Time{}
			continue
		}
		if h.leaving.IsZero() {
			h.leaving = p.now()
		}
		h.hurried = true
		for _, n := range p.pins {
			switch {
			case n.holder != h, n.state != stored, len(h.due)+len(p.late) >= maxLeaving:
			case n.ids == nil, time.Since(h.leaving) >= handBackWithin:
				p.giveUp(n, record.ReasonInstanceGone)
			case n.in == nil:
				n.until = h.leaving
				p.schedule(n)
			}
		}
	}
}
