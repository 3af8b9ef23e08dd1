package server

import (
	"context"
	"sync"
	"time"

	"carryover/convcache"
)

// maxRetiring bounds the branches that wait to be retired; what does not fit ends
// with its TTL.
const maxRetiring = 10_000

// retiring is a branch from which the conversation has turned away: the turn was
// regenerated, or an earlier message edited. Its user may still come back to it, so
// it keeps its ticket for a while.
type retiring struct {
	key   convcache.Key
	id    convcache.TicketID
	model string
	due   time.Time
}

// branches are the ones that wait, oldest first.
type branches struct {
	mu   sync.Mutex // guards wait
	wait []retiring
}

// watchBranches notes which of the branches that this turn saw its new ticket
// diverges from. Those that it contains are gone with the put.
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

// retireBranches takes the tickets of branches whose time is over, so that their
// blocks can be released. A branch that was used meanwhile is not there any more.
func (k *ticketMaker) retireBranches(ctx context.Context) {
	for {
		b, ok := k.branches.next(time.Now())
		if !ok {
			return
		}
		bounded, cancel := storeContext(ctx, k.cfg)
		k.giveUp(bounded, b.key, b.id, b.model)
		cancel()
	}
}

// giveUpBranches takes all tickets that the last turn of a conversation saw. If it failed it is sent again, and may use them.
func (k *ticketMaker) giveUpBranches(ctx context.Context, t *turn) {
	bounded, cancel := storeContext(ctx, k.cfg)
	defer cancel()
	for _, b := range t.branches {
		k.giveUp(bounded, t.conversation.key, b.ID, t.model)
	}
}

// giveUp takes a ticket that no turn is to use, if it is still there, and has its blocks released.
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
