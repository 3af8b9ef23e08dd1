package pins

import (
	"context"
	"slices"
	"sort"
	"sync"
	"time"

	"carryover/convcache"
	"carryover/server/storetime"
)

// lateRelease is a ticket in the store that is released if no turn has used it until it is due.
type lateRelease struct {
	key   convcache.Key
	id    convcache.TicketID
	model string
	due   time.Time
	left  bool // the conversation has left the branch, whose ticket another replica may have made
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
		at := sort.Search(len(l.wait), func(i int) bool { return l.wait[i].due.After(r.due) })
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

// WatchBranches notes which branches of a conversation a new ticket diverges from, because a turn was regenerated or an earlier message
// edited: their tickets are released after a while, in which the user may come back to them. The put has displaced branches that the ticket
// contains.
func (p *Pins) WatchBranches(model string, known []convcache.KeyedBranch, ticket *convcache.Ticket) {
	if !p.cfg.Release {
		return
	}
	due := time.Now().Add(p.cfg.BranchKeep)
	for _, b := range known {
		if b.Chain.Relation(ticket.Chain) == convcache.Diverges {
			p.Ledger.releases(b.ID, due)
			p.late.add(lateRelease{key: b.Key, id: b.ID, model: model, due: due, left: true})
		}
	}
}

// releaseLate gives up the tickets whose wait is over. Of its own tickets the store is asked only for those that no turn of this replica
// has taken.
func (p *Pins) releaseLate(ctx context.Context, now time.Time) {
	for ctx.Err() == nil {
		r, due := p.late.next(now)
		if !due {
			return
		}
		if !r.left && !p.Ledger.has(r.id) {
			continue
		}
		bounded, cancel := storetime.Limit(ctx, p.cfg.StoreTimeout)
		p.GiveUp(bounded, r.key, r.id, r.model)
		cancel()
	}
}
