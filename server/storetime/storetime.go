// Package storetime bounds the operations of a ticket store.
package storetime

import (
	"context"
	"time"

	"carryover/convcache"
)

// Limit returns a context for operations of a store, which ends after the limit. It does not end with the client's: a client that
// leaves must not interrupt a take halfway. A limit of 0 is none, for a store in memory, which never waits: a turn asks its store four
// times, and the timers of these operations were 12 of a turn's 204 allocations.
func Limit(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit == 0 {
		return context.WithoutCancel(ctx), func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

// Store bounds each operation on tickets of another store as [Limit] does.
type Store struct {
	convcache.Store
	Limit time.Duration
}

// Peek is Peek of the store, within the limit.
func (s Store) Peek(ctx context.Context, keys []convcache.Key) ([]convcache.KeyedBranch, convcache.Outcome) {
	ctx, cancel := Limit(ctx, s.Limit)
	defer cancel()
	return s.Store.Peek(ctx, keys)
}

// Take is Take of the store, within the limit.
func (s Store) Take(ctx context.Context, conversation convcache.Key, id convcache.TicketID) (convcache.Ticket, convcache.Outcome) {
	ctx, cancel := Limit(ctx, s.Limit)
	defer cancel()
	return s.Store.Take(ctx, conversation, id)
}

// Put is Put of the store, within the limit.
func (s Store) Put(
	ctx context.Context, conversation convcache.Key, ticket convcache.Ticket, ttl time.Duration,
) ([]convcache.Ticket, convcache.Outcome) {
	ctx, cancel := Limit(ctx, s.Limit)
	defer cancel()
	return s.Store.Put(ctx, conversation, ticket, ttl)
}
