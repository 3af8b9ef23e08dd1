package e2e

import (
	"context"
	"sync"
	"time"

	"carryover/convcache"
	"carryover/server"
)

// ledger knows of each ticket that was kept whether it was ever handed out. The
// blocks of those that were not stay pinned.
type ledger struct {
	server.Store
	mu     sync.Mutex // guards unread
	unread map[convcache.TicketID]struct{}
}

// Take implements server.Store.
func (l *ledger) Take(ctx context.Context, key convcache.Key, id convcache.TicketID) (convcache.Ticket, convcache.Outcome) {
	ticket, outcome := l.Store.Take(ctx, key, id)
	if outcome == convcache.Taken {
		l.mu.Lock()
		delete(l.unread, id)
		l.mu.Unlock()
	}
	return ticket, outcome
}

// Put implements server.Store.
func (l *ledger) Put(ctx context.Context, key convcache.Key, ticket convcache.Ticket, ttl time.Duration) ([]convcache.Ticket, convcache.Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	displaced, outcome := l.Store.Put(ctx, key, ticket, ttl)
	if outcome == convcache.Stored && !ticket.HandedBack() { // a note names no blocks
		l.unread[ticket.ID] = struct{}{}
	}
	return displaced, outcome
}

func (l *ledger) unused() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.unread)
}
