package pins

import (
	"context"
	"slices"
	"time"

	"carryover/convcache"
	"carryover/server/continuation"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

type rounds struct {
	changed  time.Time // when a ticket was last given up for the budget, or a pin last waited for its release
	compared time.Time // when the memory in use was last compared with the budget
	stood    time.Time // the reading since which the engine runs nothing while requests wait; zero if it does not stand
	told     int       // the pinned tokens that this replica last told the others
	asked    time.Time // when
	others   []int     // the pinned tokens of the other replicas
	heard    time.Time // when they were received, zero for never
	read     time.Time // the engine's last reading
	then     int       // what this replica's tickets pinned at that reading
}

const (
	// maxLeaving is how many unused tickets may wait for their release while more are given up. No more can be released within a second.
	maxLeaving = 256
	// compareEvery is how often an engine's memory in use is compared with the budget. Within this time, tickets that were given up are released
	// (releaseAfter), and the engine is read again.
	compareEvery = 15 * time.Second
	// budgetEvery is how often the budget is checked, besides whenever a ticket exceeds it, and how often replicas exchange what they pin.
	budgetEvery = time.Second
	// toldParts: a replica also reports if it pins more than it reported last, by this part of the budget.
	toldParts = 64
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
		p.share(ctx, h, most)
		may, live := p.canRelease(h.incarnation), engine.Live()
		p.mu.Lock()
		keep := h.keep(live, most)
		h.releases.hurried = h.releases.hurried || h.tokens[stored]+h.tokens[due] > keep
		if may && p.giveUpOldest(h, keep, continuation.HandBack, record.ReasonReleasedOverBudget) > 0 {
			h.rounds.changed = p.now()
		}
		p.mu.Unlock()
		p.takeLate(ctx)
	}
	p.run(ctx, continuation.Release)
}

// share exchanges with other replicas how many tokens each pins on an incarnation.
func (p *Pins) share(ctx context.Context, h *holder, most int) {
	r, engine, now := &h.rounds, h.incarnation.Engine(), p.now()
	own := p.Pinned(engine)
	if p.deps.Shared == nil || now.Sub(r.asked) < budgetEvery && own <= r.told+most/toldParts {
		return
	}
	r.asked, r.told = now, own
	bounded, cancel := context.WithTimeout(ctx, budgetEvery)
	defer cancel()
	if others, err := p.deps.Shared.SharePinned(bounded, engine.Name+" "+h.incarnation.ID(), own); err == nil {
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
// If an idle engine has more KV in use than the budget, tickets must pin it. So this replica notices the others' tickets even without hearing of
// them, and each replica keeps the same share of its own. On an engine that stands, each replica gives up half of its tickets for the requests that
// wait.
func (h *holder) keep(live fleet.Live, most int) (tokens int) {
	own, r, now := h.tokens[stored], &h.rounds, time.Now()
	if r.read != live.Read || r.read.IsZero() {
		r.read, r.then = live.Read, own
	}
	if h.tokens[due] > 0 {
		r.changed = now
	}
	if r.stands(live) {
		return min(most, own/2)
	}
	keep, known := most, own
	if now.Sub(r.heard) < convcache.PinnedLife {
		keep = part(most, r.others)
		for _, other := range r.others {
			known += other
		}
	}
	inUse := int(live.Usage * float64(live.KVTokens))
	full := r.then + live.KVTokens*fullAt/100 - inUse
	idle := live.InFlight == 0 && live.Running == 0 && live.Waiting == 0 && live.Read.After(r.changed)
	switch {
	case idle && inUse > max(most, known) && now.Sub(r.compared) >= compareEvery:
		r.compared = now
		keep = min(keep, int(float64(most)*float64(own)/float64(inUse)))
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
func (p *Pins) giveUpOldest(h *holder, keep int, end continuation.End, why string) (tickets int) {
	for h.tokens[stored] > keep && len(h.releases.due)+len(p.late) < maxLeaving {
		p.giveUp(h.stored.Most().Oldest().Value, end, why)
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
		engine, end := h.incarnation.Engine(), continuation.HandBack
		if !engine.Leaves() {
			h.leaving = time.Time{}
			continue
		}
		p.mu.Lock()
		if h.releases.hurried = true; h.leaving.IsZero() {
			h.leaving = p.now()
		}
		if time.Since(h.leaving) >= handBackWithin {
			end = continuation.Release
			for of, q := range p.queues {
				if of.prefill != nil && of.decode == h.incarnation {
					for _, n := range slices.Clone(q.due) {
						p.due(n, n.ticket, end)
					}
				}
			}
		}
		tickets := p.giveUpOldest(h, 0, end, record.ReasonInstanceGone)
		p.mu.Unlock()
		if tickets > 0 {
			p.cfg.Logger.Info("gave up the tickets of a decode instance that leaves", "decode", engine.Name, "tickets", tickets)
		}
	}
}
