package pins

import (
	"context"
	"slices"
	"time"

	"carryover/convcache"
	"carryover/server/continuation"
	"carryover/server/record"
	"carryover/server/storetime"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// rounds is what the budget remembers about an incarnation from one round to the next.
type rounds struct {
	changed  time.Time // when a ticket was last given up for the budget, or blocks last waited for their release
	compared time.Time // when the tickets of all replicas were last compared with the budget
	stood    time.Time // since which reading the engine runs nothing and lets requests wait, zero if it does not
	logged   time.Time // when the log last reported tickets that were given up
	waited   bool      // some tickets were given up since because requests waited for memory, or the cache was full
	tickets  int       // tickets given up since
	tokens   int       // their tokens
	told     int       // what other replicas were told that this one pins
	asked    time.Time // when
	others   []int     // what they pin, as they told
	heard    time.Time // when they did, zero for never
	read     time.Time // when the engine was read last
	then     int       // what this replica's tickets pinned when that was known
}

// Limits of giving tickets up for the budget.
const (
	// maxLeaving is how many unused tickets may wait for their release while more are given up. More are not released within a second, and
	// the blocks of those beyond maxDue would stay pinned until decode's TTL ends.
	maxLeaving = 256
	// compareEvery is how often the tickets of all replicas are compared with the budget. In this time tickets that were given up are released
	// (releaseAfter), and the engine is read again.
	compareEvery = 15 * time.Second
	// budgetEvery is how often the budget is checked, besides whenever a ticket exceeds it, and replicas tell each other what they pin.
	budgetEvery = time.Second
	// toldParts: a replica also tells when it pins more by this part of the budget.
	toldParts = 64
	// standsFor is how long an engine must run nothing before tickets within their share are given up. Readings are seconds apart, and a
	// request that reads KV counts as waiting.
	standsFor = 3 * time.Second
	// givenUpLogEvery is how often the log reports tickets that were given up, for each engine.
	givenUpLogEvery = time.Minute
	// fullAt is the percentage of a cache in use at which it is full for tickets. Hand-backs spare an engine from there on, too.
	fullAt = 90
)

// candidates returns the holders of all decode engines.
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

// enforce is one round of the budget: it gives up the oldest tickets of each engine on which tickets pin more than their share.
func (p *Pins) enforce(ctx context.Context) {
	for _, h := range p.candidates() {
		r, engine := &h.rounds, h.incarnation.Engine()
		most := p.Budget(engine)
		if most == 0 {
			continue
		}
		p.share(ctx, h, most)
		may, live := p.canRelease(h.incarnation), engine.Live()
		p.mu.Lock()
		keep, waited := h.keep(live, most)
		h.releases.hurried = h.releases.hurried || h.tokens[stored]+h.tokens[due] > keep
		if may {
			if tickets, tokens := p.giveUpOldest(h, keep, continuation.HandBack, record.ReasonReleasedOverBudget); tickets > 0 {
				r.changed, r.tickets, r.tokens, r.waited = p.now(), r.tickets+tickets, r.tokens+tokens, r.waited || waited
			}
		}
		p.mu.Unlock()
		p.takeLate(ctx)
		p.say(h)
	}
	p.run(ctx, continuation.Release)
}

// share tells other replicas what this one pins on an incarnation, and learns what they do.
func (p *Pins) share(ctx context.Context, h *holder, most int) {
	r, engine, now := &h.rounds, h.incarnation.Engine(), p.now()
	own := p.Pinned(engine)
	if p.deps.Shared == nil || now.Sub(r.asked) < budgetEvery && own <= r.told+most/toldParts {
		return
	}
	r.asked, r.told = now, own
	bounded, cancel := storetime.Limit(ctx, p.cfg.StoreTimeout)
	defer cancel()
	if others, err := p.deps.Shared.SharePinned(bounded, engine.Name+" "+h.incarnation.ID(), own); err == nil {
		r.others, r.heard = others, now
	}
}

// part returns this replica's part of a budget beside others that pin so much: what they leave, and at least as much as each of those has
// that pin most. If all keep to their parts, nothing is given up twice.
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

// keep returns how many tokens this replica's tickets may pin on an incarnation: its part of the budget, and beyond half of that only what
// the rest leaves free of fullAt of the cache; while it is full and requests wait for room, a quarter of its part. So tickets yield to what
// runs, and a peak of load does not cost them all.
//
// Replicas that do not hear of each other still see that an engine which runs nothing has more of its KV in use than the budget: all of it is
// pinned by tickets, and each replica keeps the same part of its own. For an engine that stands, each replica gives up half of its tickets,
// for the requests that wait.
func (h *holder) keep(live fleet.Live, most int) (tokens int, waited bool) {
	own, r, now := h.tokens[stored], &h.rounds, time.Now()
	if r.read != live.Read || r.read.IsZero() {
		r.read, r.then = live.Read, own
	}
	if h.tokens[due] > 0 {
		r.changed = now
	}
	if r.stands(live) {
		return min(most, own/2), own/2 < most
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
		return keep / 4, true
	case full < keep:
		return max(full, keep/2), true
	}
	return keep, false
}

// stands reports whether the engine has run nothing for standsFor while requests wait for memory. Requests that wait for KV from elsewhere
// do not count, because memory does not help them. vLLM admits requests in order: if the first is one that was preempted, the others keep
// their blocks, nothing runs that would free any, and only the blocks that tickets pin can be freed (v1/core/sched/scheduler.py).
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

// giveUpOldest gives tickets of a holder up until the rest pins no more than so many tokens: the oldest of the account that pins most, again and
// again. The caller holds p.mu.
func (p *Pins) giveUpOldest(h *holder, keep int, end continuation.End, why string) (tickets, tokens int) {
	for h.tokens[stored] > keep && len(h.releases.due)+len(p.late) < maxLeaving {
		n := h.stored.Most().Oldest().Value
		p.giveUp(n, end, why)
		tickets, tokens = tickets+1, tokens+n.tokens
	}
	return tickets, tokens
}

// canRelease reports whether a prefill instance could release tickets of this incarnation now. If none can, giving tickets up frees nothing.
func (p *Pins) canRelease(decode *fleet.Incarnation) bool {
	return slices.ContainsFunc(p.deps.Fleet.Engines(upstream.RolePrefill), func(prefill *fleet.Engine) bool {
		return !prefill.Quarantined() && prefill.Last().PairWith(decode).Releases()
	})
}

// say logs from time to time how many tickets were given up. A larger share, or a larger cache, may be better.
func (p *Pins) say(h *holder) {
	r := &h.rounds
	if r.tickets == 0 || time.Since(r.logged) < givenUpLogEvery {
		return
	}
	why := "tickets pinned more than their share"
	if r.waited {
		why = "requests waited for room, or the cache was full"
	}
	p.cfg.Logger.Info("released the oldest tickets, for room in the KV cache",
		"decode", h.incarnation.Engine().Name, "why", why, "tickets", r.tickets, "tokens", r.tokens, "share", p.cfg.PinnedShare)
	r.logged, r.tickets, r.tokens, r.waited = p.now(), 0, 0, false
}

// handBackWithin is how long an engine that leaves waits for hand-backs. One leg takes 0.04 to 0.3 s (measured on vLLM 0.32), and each pair
// runs one at a time.
const handBackWithin = 3 * time.Second

// evacuate frees the blocks that this replica's tickets pin on decode engines that leave, because an operator drains them or a source has
// removed them. Until the last ticket is read or released, POST /pause and /sleep of such an engine do not answer, and its shutdown waits
// (measured on vLLM 0.33); if the tickets had to expire, that would take minutes. Tickets are handed back if that is possible within
// handBackWithin; the others are released.
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
		tickets, _ := p.giveUpOldest(h, 0, end, record.ReasonInstanceGone)
		p.mu.Unlock()
		if tickets > 0 {
			p.cfg.Logger.Info("gave up the tickets of a decode instance that leaves", "decode", engine.Name, "tickets", tickets)
		}
	}
}
