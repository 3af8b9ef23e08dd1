package server

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

// watchBranches notes the branches from which the turn's new ticket diverges. The put has displaced branches that the ticket contains.
func (k *ticketMaker) watchBranches(t *turn, ticket convcache.Ticket) {
	if !k.cfg.Release {
		return
	}
	due := time.Now().Add(k.cfg.BranchKeep)
	k.branches.mu.Lock()
	defer k.branches.mu.Unlock()
	for _, b := range t.branches {
		if b.Chain.Relation(ticket.Chain) == convcache.Diverges && len(k.branches.wait) < maxRetiring {
			k.branches.wait = append(k.branches.wait, retiring{key: t.conversation.key, id: b.ID, model: t.model, due: due})
		}
	}
}

// retireBranches takes the tickets of branches that have waited long enough, so that their blocks can be released. A branch that a turn has
// used meanwhile is no longer in the store.
func (k *ticketMaker) retireBranches(ctx context.Context) {
	for {
		b, ok := k.branches.next(time.Now())
		if !ok {
			return
		}
		bounded, cancel := storetime.Limit(ctx, k.cfg.StoreTimeout)
		k.giveUp(bounded, b.key, b.id, b.model)
		cancel()
	}
}

// giveUpBranches takes all tickets that the last turn of a conversation saw. It is called only if that turn succeeded, because a failed one is
// sent again and may use them.
func (k *ticketMaker) giveUpBranches(ctx context.Context, t *turn) {
	bounded, cancel := storetime.Limit(ctx, k.cfg.StoreTimeout)
	defer cancel()
	for _, b := range t.branches {
		k.giveUp(bounded, t.conversation.key, b.ID, t.model)
	}
}

// giveUp takes a ticket that no turn may use, if it is still in the store, and has its blocks released.
func (k *ticketMaker) giveUp(ctx context.Context, key convcache.Key, id convcache.TicketID, model string) {
	ticket, outcome := k.deps.Store.Take(ctx, key, id)
	k.ledger.gone(id, outcome)
	if outcome == convcache.Taken {
		k.releaser.unuse(ticket, model)
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
