package pins

import (
	"context"
	"math"
	"slices"
	"time"

	"carryover/convcache"
	"carryover/server/record"
	"carryover/server/storetime"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// budget keeps tickets from pinning more than their share of a decode engine's KV cache. It works in the background, on one goroutine.
type budget struct {
	cfg       *Config
	deps      *Deps
	ledger    *Ledger
	releases  *Releases
	handBacks *HandBacks
}

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
	// the blocks of those for which the fleet's list is full would stay pinned until decode's TTL ends.
	maxLeaving = 256
	// compareEvery is how often the tickets of all replicas are compared with the budget. In this time tickets that were given up are released
	// (ReleaseAfter of package unused), and the engine is read again.
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

// most returns how many tokens of an engine's KV cache tickets may pin, 0 if there is no limit or the size is not known.
func (l *Ledger) most(kvTokens int) int { return int(l.share * float64(kvTokens)) }

// enforce is one round of the budget: it gives up the oldest tickets of each engine on which tickets pin more than their share.
func (b *budget) enforce(ctx context.Context) {
	hurry := false
	for _, of := range b.ledger.all(time.Now()) {
		live := of.incarnation.Engine().Live()
		most := b.ledger.most(live.KVTokens)
		if most == 0 || !b.cfg.Release {
			b.ledger.wakes(of, math.MaxInt)
			continue
		}
		b.share(ctx, of, most)
		if live.Pins.Waiting > 0 {
			of.rounds.changed = time.Now()
		}
		keep, waited := b.ledger.keep(of, live, most)
		if b.releasable(of.incarnation) {
			b.giveUp(ctx, of, keep, waited)
		}
		if b.ledger.tokens(of.incarnation)+of.incarnation.Engine().Live().Pins.Waiting > keep {
			of.incarnation.Pins.Hurry()
			hurry = true
		}
		if b.deps.Shared != nil {
			keep = min(keep, b.ledger.tokens(of.incarnation)+most/toldParts)
		}
		b.ledger.wakes(of, keep)
		b.say(of)
	}
	if hurry {
		b.releases.workOff(ctx)
	}
}

// share tells other replicas what this one pins on an incarnation, and learns what they do.
func (b *budget) share(ctx context.Context, of *pinned, most int) {
	r, engine, now := &of.rounds, of.incarnation.Engine(), time.Now()
	own := b.ledger.Pinned(engine)
	if b.deps.Shared == nil || now.Sub(r.asked) < budgetEvery && own <= r.told+most/toldParts {
		return
	}
	r.asked, r.told = now, own
	bounded, cancel := storetime.Limit(ctx, b.cfg.StoreTimeout)
	defer cancel()
	if others, err := b.deps.Shared.SharePinned(bounded, engine.Name+" "+of.incarnation.ID(), own); err == nil {
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
func (l *Ledger) keep(of *pinned, live fleet.Live, most int) (tokens int, waited bool) {
	own, r, now := l.tokens(of.incarnation), &of.rounds, time.Now()
	if r.read != live.Read || r.read.IsZero() {
		r.read, r.then = live.Read, own
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

// giveUp takes tickets of an incarnation out of the store until the rest pins no more than keep: the oldest of the account that pins most,
// again and again. It does not get a ticket that a
// turn uses, because the store gives each ticket to one taker.
func (b *budget) giveUp(ctx context.Context, of *pinned, keep int, waited bool) {
	for ctx.Err() == nil && of.incarnation.Pins.Unused() < maxLeaving {
		p, more := b.ledger.next(of, keep)
		if !more {
			return
		}
		switch b.handBacks.takeOut(ctx, p, true, record.ReasonReleasedOverBudget) {
		case convcache.Taken:
			of.rounds.changed = time.Now()
			of.rounds.tickets, of.rounds.waited = of.rounds.tickets+1, of.rounds.waited || waited
			of.rounds.tokens += p.tokens
		case convcache.Unavailable:
			return // this ticket is lost; the next ones wait until the store answers
		}
	}
}

// releasable reports whether a prefill instance could release tickets of this incarnation now. If none can, giving tickets up frees nothing.
func (b *budget) releasable(decode *fleet.Incarnation) bool {
	for _, prefill := range b.deps.Fleet.Engines(upstream.RolePrefill) {
		if !prefill.Quarantined() && prefill.Last().PairWith(decode).Releases() {
			return true
		}
	}
	return false
}

// say logs from time to time how many tickets were given up. A larger share, or a larger cache, may be better.
func (b *budget) say(of *pinned) {
	r := &of.rounds
	if r.tickets == 0 || time.Since(r.logged) < givenUpLogEvery {
		return
	}
	why := "tickets pinned more than their share"
	if r.waited {
		why = "requests waited for room, or the cache was full"
	}
	b.cfg.Logger.Info("released the oldest tickets, for room in the KV cache",
		"decode", of.incarnation.Engine().Name, "why", why, "tickets", r.tickets, "tokens", r.tokens, "share", b.cfg.PinnedShare)
	r.logged, r.tickets, r.tokens, r.waited = time.Now(), 0, 0, false
}

// Budget is how many tokens of a decode engine's KV cache tickets may pin, 0 if that is not known or not limited.
func (p *Pins) Budget(decode *fleet.Engine) int {
	if !p.cfg.Release {
		return 0 // nothing is given up for it
	}
	return p.Ledger.most(decode.KVTokens())
}
