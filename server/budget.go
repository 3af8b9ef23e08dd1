package server

import (
	"context"
	"time"

	"carryover/convcache"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// budget is what is kept of a start from one round to the next, by the goroutine that makes them.
type budget struct {
	changed  time.Time // when a ticket was last given up for room, or something waited for its release
	compared time.Time // when the tickets of all replicas were last compared with the budget
	said     time.Time // when the log said last what was given up
	tickets  int       // given up since
	tokens   int
}

// Bounds of what is given up for room.
const (
	// maxLeaving is how many unused tickets may wait while tickets are given up: more are not released within a second, and
	// what the fleet has no room for would be pinned until decode's TTL.
	maxLeaving = 256
	// compareEvery is how often the tickets of all replicas are compared with the budget: what was given up has been released by
	// then (releaseAfter of package fleet), and the engine was read since.
	compareEvery = 15 * time.Second
	// roomEvery is how often that is looked at, besides whenever a ticket exceeds the budget.
	roomEvery = 2 * time.Second
	// roomSaidEvery is how often the log says what was given up for room of one engine.
	roomSaidEvery = time.Minute
)

// most is how many tokens of an engine's KV cache tickets may pin, 0 if that is not known or not limited.
func (l *ledger) most(live fleet.Live) int { return int(l.share * float64(live.KVTokens)) }

// makeRoom is a round of what keeps tickets from pinning more than their share of a decode engine's KV cache: the oldest are given
// up, so that their blocks are released. It runs beside the turns.
func (s *turns) makeRoom(ctx context.Context) {
	hurry := false
	for _, of := range s.ledger.all(time.Now()) {
		live := of.start.Engine().Live()
		most := s.ledger.most(live)
		if most == 0 || !s.cfg.Release {
			continue
		}
		if live.Pinned > 0 {
			of.budget.changed = time.Now()
		}
		keep := s.ledger.keep(of, live, most)
		if s.releasable(of.start) {
			s.giveUp(ctx, of, keep)
		}
		if s.ledger.tokens(of.start)+of.start.Engine().Live().Pinned > most {
			of.start.Hurry()
			hurry = true
		}
		s.sayRoom(of)
	}
	if hurry {
		s.releaser.workOff(ctx)
	}
}

// keep is how many tokens the tickets of this replica may pin on a start. Replicas do not know of each other's tickets. But of an
// engine that runs nothing all that is in use is pinned by tickets, or waits for its release: where that is more than the budget,
// each replica keeps the same part of its own.
func (l *ledger) keep(of *pinned, live fleet.Live, most int) int {
	own, b, now := l.tokens(of.start), &of.budget, time.Now()
	idle := live.InFlight == 0 && live.Running == 0 && live.Waiting == 0 && live.Read.After(b.changed)
	inUse := int(live.KVUsage * float64(live.KVTokens))
	if !idle || inUse <= max(most, own) || now.Sub(b.compared) < compareEvery {
		return most
	}
	b.compared = now
	return int(float64(most) * float64(own) / float64(inUse))
}

// giveUp takes the oldest tickets of a start out of the store until the rest pins no more than keep. Of a ticket that was used
// meanwhile, or that is being used, there is nothing to be had: the store gives it to one taker.
func (s *turns) giveUp(ctx context.Context, of *pinned, keep int) {
	for ctx.Err() == nil && of.start.Unused() < maxLeaving {
		p, more := s.ledger.next(of, keep)
		if !more {
			return
		}
		bounded, cancel := storeContext(ctx, s.cfg)
		ticket, outcome := s.deps.Store.Take(bounded, p.key, p.id)
		cancel()
		switch outcome {
		case convcache.Taken:
			s.releaser.unuse(ticket, p.model)
			s.ledger.givenUp(p)
			of.budget.changed = time.Now()
			of.budget.tickets++
			of.budget.tokens += p.tokens
		case convcache.Unavailable:
			return // the ticket is lost; the next ones wait for a store that answers
		}
	}
}

// releasable reports whether a prefill instance could release tickets of this start now. Where none can, giving them up frees
// nothing.
func (s *turns) releasable(decode *fleet.Start) bool {
	for _, prefill := range s.deps.Fleet.Engines(upstream.RolePrefill) {
		if !prefill.Barred() && prefill.Last().Link(decode).Releases() {
			return true
		}
	}
	return false
}

// sayRoom says now and then what was given up for room: who sees it may want a larger share, or a larger cache.
func (s *turns) sayRoom(of *pinned) {
	b := &of.budget
	if b.tickets == 0 || time.Since(b.said) < roomSaidEvery {
		return
	}
	s.cfg.Logger.Info("released the oldest tickets, which pinned more than their share of the KV cache",
		"decode", of.start.Engine().Name, "tickets", b.tickets, "tokens", b.tokens, "share", s.cfg.PinnedShare)
	b.said, b.tickets, b.tokens = time.Now(), 0, 0
}

// Len, Less, Swap, Push and Pop make a heap of a start's tickets.
func (p *pinned) Len() int { return len(p.oldest) }

// Less reports whether one ticket is older than another.
func (p *pinned) Less(i, j int) bool { return p.oldest[i].deadline.Before(p.oldest[j].deadline) }

// Swap keeps each ticket's place.
func (p *pinned) Swap(i, j int) {
	p.oldest[i], p.oldest[j] = p.oldest[j], p.oldest[i]
	p.oldest[i].at, p.oldest[j].at = i, j
}

// Push is for package heap.
func (p *pinned) Push(x any) {
	added := x.(*pin)
	added.at = len(p.oldest)
	p.oldest = append(p.oldest, added)
}

// Pop is for package heap.
func (p *pinned) Pop() any {
	last := len(p.oldest) - 1
	x := p.oldest[last]
	p.oldest[last] = nil
	p.oldest = p.oldest[:last]
	return x
}
