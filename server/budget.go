package server

import (
	"context"
	"time"

	"carryover/convcache"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// pinnedBudget keeps tickets from pinning more than their share of a decode engine's KV cache. It works beside the turns, on one
// goroutine.
type pinnedBudget struct {
	cfg      *Config
	deps     *Deps
	ledger   *ledger
	releaser *releaser

	handBacks *handBacks
}

// rounds is what the budget keeps of a start from one round to the next.
type rounds struct {
	changed  time.Time // when a ticket was last given up for the budget, or something waited for its release
	compared time.Time // when the tickets of all replicas were last compared with the budget
	stood    time.Time // the reading since which the engine runs nothing and lets requests wait, zero if it does not
	logged   time.Time // when the log said last what was given up
	waited   bool      // some of those were given up for requests that waited for room
	tickets  int       // given up since
	tokens   int
}

// Bounds of what is given up for the budget.
const (
	// maxLeaving is how many unused tickets may wait while tickets are given up: more are not released within a second, and
	// what the fleet has no room for would be pinned until decode's TTL.
	maxLeaving = 256
	// compareEvery is how often the tickets of all replicas are compared with the budget: what was given up has been released by
	// then (releaseAfter of package fleet), and the engine was read since.
	compareEvery = 15 * time.Second
	// budgetEvery is how often a round is made, besides whenever a ticket exceeds the budget.
	budgetEvery = 2 * time.Second
	// standsFor is how long an engine has to stand before tickets within their share are given up: readings are seconds apart, and
	// a request that reads KV counts as one that waits.
	standsFor = 3 * time.Second
	// givenUpLogEvery is how often the log says what was given up of one engine.
	givenUpLogEvery = time.Minute
)

// most is how many tokens of an engine's KV cache tickets may pin, 0 if that is not known or not limited.
func (l *ledger) most(kvTokens int) int { return int(l.share * float64(kvTokens)) }

// enforce is a round of what keeps tickets from pinning more than their share of a decode engine's KV cache: the oldest are given
// up, so that their blocks are released. It runs beside the turns.
func (b *pinnedBudget) enforce(ctx context.Context) {
	hurry := false
	for _, of := range b.ledger.all(time.Now()) {
		live := of.start.Engine().Live()
		most := b.ledger.most(live.KVTokens)
		if most == 0 || !b.cfg.Release {
			continue
		}
		if live.Pinned > 0 {
			of.rounds.changed = time.Now()
		}
		keep, waited := b.ledger.keep(of, live, most)
		if b.releasable(of.start) {
			b.giveUp(ctx, of, keep, waited)
		}
		if b.ledger.tokens(of.start)+of.start.Engine().Live().Pinned > keep {
			of.start.Hurry()
			hurry = true
		}
		b.say(of)
	}
	if hurry {
		b.releaser.workOff(ctx)
	}
}

// keep is how many tokens the tickets of this replica may pin on a start. Replicas do not know of each other's tickets. But of an
// engine that runs nothing all that is in use is pinned by tickets, or waits for its release: where that is more than the budget,
// each replica keeps the same part of its own. An engine that stands is given half of them, for the requests that have waited.
func (l *ledger) keep(of *pinned, live fleet.Live, most int) (tokens int, waited bool) {
	own, r, now := l.tokens(of.start), &of.rounds, time.Now()
	if r.stands(live) {
		return min(most, own/2), own/2 < most
	}
	idle := live.InFlight == 0 && live.Running == 0 && live.Waiting == 0 && live.Read.After(r.changed)
	inUse := int(live.KVUsage * float64(live.KVTokens))
	if !idle || inUse <= max(most, own) || now.Sub(r.compared) < compareEvery {
		return most, false
	}
	r.compared = now
	return int(float64(most) * float64(own) / float64(inUse)), false
}

// stands reports whether the engine lets requests wait for room and runs none, for long. Those that wait for KV of others free nothing by
// getting room. vLLM lets none in before the first that waits: where
// that is one that was preempted, the others keep the blocks that they have, nothing runs that would free any, and only what
// tickets pin can (v1/core/sched/scheduler.py).
func (r *rounds) stands(live fleet.Live) bool {
	switch {
	case live.Running > 0 || live.Short == 0:
		r.stood = time.Time{}
	case r.stood.IsZero():
		r.stood = live.Read
	case live.Read.Sub(r.stood) >= standsFor:
		r.stood = live.Read
		return true
	}
	return false
}

// giveUp takes the oldest tickets of a start out of the store until the rest pins no more than keep. Of a ticket that was used
// meanwhile, or that is being used, there is nothing to be had: the store gives it to one taker.
func (b *pinnedBudget) giveUp(ctx context.Context, of *pinned, keep int, waited bool) {
	for ctx.Err() == nil && of.start.Unused() < maxLeaving {
		p, more := b.ledger.next(of, keep)
		if !more {
			return
		}
		bounded, cancel := storeContext(ctx, b.cfg)
		ticket, outcome := b.deps.Store.Take(bounded, p.key, p.id)
		cancel()
		switch outcome {
		case convcache.Taken:
			if !b.handBacks.displaced(&ticket) {
				b.releaser.unuse(ticket, p.model)
				b.ledger.givenUp(p, waited)
			}
			b.releaser.counts.givenUp.Add(1)
			of.rounds.changed = time.Now()
			of.rounds.tickets, of.rounds.waited = of.rounds.tickets+1, of.rounds.waited || waited
			of.rounds.tokens += p.tokens
		case convcache.Consumed: // its taker has it
			b.handBacks.left(p.id)
		case convcache.Unavailable:
			b.handBacks.left(p.id)
			of.start.AddExpiringPin(p.tokens, p.held)
			return // the ticket is lost; the next ones wait for a store that answers
		default:
			b.handBacks.left(p.id)
			of.start.AddExpiringPin(p.tokens, p.held)
		}
	}
}

// releasable reports whether a prefill instance could release tickets of this start now. Where none can, giving them up frees
// nothing.
func (b *pinnedBudget) releasable(decode *fleet.Incarnation) bool {
	for _, prefill := range b.deps.Fleet.Engines(upstream.RolePrefill) {
		if !prefill.Quarantined() && prefill.Last().PairWith(decode).Releases() {
			return true
		}
	}
	return false
}

// say tells the log now and then what was given up: a larger share may be better, or a larger cache.
func (b *pinnedBudget) say(of *pinned) {
	r := &of.rounds
	if r.tickets == 0 || time.Since(r.logged) < givenUpLogEvery {
		return
	}
	why := "tickets pinned more than their share"
	if r.waited {
		why = "requests waited for room, and none ran"
	}
	b.cfg.Logger.Info("released the oldest tickets, for room in the KV cache",
		"decode", of.start.Engine().Name, "why", why, "tickets", r.tickets, "tokens", r.tokens, "share", b.cfg.PinnedShare)
	r.logged, r.tickets, r.tokens, r.waited = time.Now(), 0, 0, false
}

// PinnedBudget is how many tokens of a decode engine's KV cache tickets may pin, 0 if that is not known or not limited.
func (s *Server) PinnedBudget(decode *fleet.Engine) int {
	if !s.cfg.Release {
		return 0 // nothing is given up for it
	}
	return s.pinned.ledger.most(decode.KVTokens())
}
