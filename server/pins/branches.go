package pins

import (
	"context"
	"sync"
	"time"

	"carryover/convcache"
	"carryover/server/storetime"
)

// maxRetiring is how many branches may wait to be retired. Further ones end with their TTL.
const maxRetiring = 10_000

// retiring is a branch that the conversation has left, because a turn was regenerated or an earlier message edited. The user may still come
// back to it, so that it keeps its ticket for a while.
type retiring struct {
	key   convcache.Key
	id    convcache.TicketID
	model string
	due   time.Time
}

// branches are the branches that wait to be retired, oldest first.
type branches struct {
	mu   sync.Mutex // guards wait
	wait []retiring
}

// WatchBranches notes which branches of a conversation a new ticket diverges from: their tickets are given up after a while. The put has
// displaced branches that the ticket contains.
func (p *Pins) WatchBranches(model string, known []convcache.KeyedBranch, ticket *convcache.Ticket) {
	if !p.cfg.Release {
		return
	}
	due := time.Now().Add(p.cfg.BranchKeep)
	p.branches.mu.Lock()
	defer p.branches.mu.Unlock()
	for _, b := range known {
		if b.Chain.Relation(ticket.Chain) == convcache.Diverges && len(p.branches.wait) < maxRetiring {
			p.branches.wait = append(p.branches.wait, retiring{key: b.Key, id: b.ID, model: model, due: due})
		}
	}
}

// retireBranches takes the tickets of branches that have waited long enough, so that their blocks can be released. A branch that a turn has
// used meanwhile is no longer in the store.
func (p *Pins) retireBranches(ctx context.Context) {
	for {
		b, ok := p.branches.next(time.Now())
		if !ok {
			return
		}
		bounded, cancel := storetime.Limit(ctx, p.cfg.StoreTimeout)
		p.GiveUp(bounded, b.key, b.id, b.model)
		cancel()
	}
}

func (b *branches) next(now time.Time) (retiring, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.wait) == 0 || now.Before(b.wait[0].due) {
		return retiring{}, false
	}
	first := b.wait[0]
	b.wait = b.wait[1:]
	return first, true
}
