package pins

import (
	"context"
	"slices"
	"sync"
	"time"

	"carryover/convcache"
	"carryover/server/continuation"
	"carryover/server/storetime"
)

// Choose decides, before an answer's ticket is put, for how long the ticket waits for its turn and what becomes of it then. The caller releases a
// ticket for which AtOnce holds in place of putting it, and otherwise tells Stored of the choice.
func (h *HandBacks) Choose(answer Answer, tenant string, kind continuation.Kind, ticket *convcache.Ticket) continuation.Choice {
	choice, fixed := h.cfg.fixed(h.on())
	if !fixed {
		terms := continuation.TermsOf(continuation.Engines{
			PerToken: answer.Prefill.Engine().Speed.Marginal(), KVTokens: answer.Decode.Engine().KVTokens(), PinnedTokens: h.ledger.tokens(answer.Decode),
			BlockSize: ticket.Chain.BlockSize,
		}, ticket.Tokens, answer.PromptTokens)
		terms.HandsBack, terms.Releases, terms.Unlearnt = h.on() && h.queues.takes(answer, ticket), h.cfg.Release, h.cfg.HandBackAfter
		curve := h.learner.Curve(tenant, kind, time.Now())
		choice = terms.Least(&curve)
	}
	h.choices[choice.Now()].Add(1)
	return choice
}

// fixed returns the choice for all tickets, and false where it is learnt. on says that tickets are handed back.
func (c *HandBackConfig) fixed(on bool) (choice continuation.Choice, fixed bool) {
	switch {
	case on && c.HandBack == HandBackNow:
		return continuation.Choice{End: continuation.HandBack}, true
	case on:
		return continuation.Choice{Wait: c.HandBackAfter, End: continuation.HandBack}, !c.HandBackAuto
	default:
		return continuation.Choice{End: continuation.Keep}, !c.HandBackAuto
	}
}

// lateRelease is a ticket in the store that is released if no turn has used it until it is due.
type lateRelease struct {
	key   convcache.Key
	id    convcache.TicketID
	model string
	due   time.Time
}

// lateReleases are the tickets that are released later, in the order in which they are due.
type lateReleases struct {
	mu   sync.Mutex // guards wait
	wait []lateRelease
}

// maxLate is how many tickets may wait for a late release. Further ones end with their TTL.
const maxLate = 10_000

func (l *lateReleases) add(r lateRelease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.wait) < maxLate {
		at, _ := slices.BinarySearchFunc(l.wait, r, func(a, b lateRelease) int { return a.due.Compare(b.due) })
		l.wait = slices.Insert(l.wait, at, r)
	}
}

func (l *lateReleases) next(now time.Time) (lateRelease, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.wait) == 0 || now.Before(l.wait[0].due) {
		return lateRelease{}, false
	}
	first := l.wait[0]
	l.wait = l.wait[1:]
	return first, true
}

// releaseLate gives up the tickets whose wait is over. The store is asked only for those that no turn of this replica has taken.
func (p *Pins) releaseLate(ctx context.Context, now time.Time) {
	for ctx.Err() == nil {
		r, due := p.HandBacks.late.next(now)
		if !due {
			return
		}
		if !p.Ledger.has(r.id) {
			continue
		}
		bounded, cancel := storetime.Limit(ctx, p.cfg.StoreTimeout)
		p.GiveUp(bounded, r.key, r.id, r.model)
		cancel()
	}
}
