package telemetry

import (
	"context"
	"sync/atomic"
	"time"

	"carryover/convcache"
	"carryover/server"
)

// Store measures the operations of a ticket store.
type Store struct {
	server.Store
	metrics   *Metrics
	displaced atomic.Int64 // tickets that a put has displaced
}

// Store returns the store with its operations measured.
func (m *Metrics) Store(store server.Store) *Store { return &Store{Store: store, metrics: m} }

// Peek lists the tickets of conversations.
func (s *Store) Peek(ctx context.Context, keys []convcache.Key) ([]convcache.KeyedBranch, convcache.Outcome) {
	began := time.Now()
	branches, outcome := s.Store.Peek(ctx, keys)
	s.took("peek", outcome, began)
	return branches, outcome
}

// Take removes a ticket.
func (s *Store) Take(ctx context.Context, conversation convcache.Key, id convcache.TicketID) (convcache.Ticket, convcache.Outcome) {
	began := time.Now()
	ticket, outcome := s.Store.Take(ctx, conversation, id)
	s.took("take", outcome, began)
	return ticket, outcome
}

// Put stores a ticket.
func (s *Store) Put(
	ctx context.Context, conversation convcache.Key, ticket convcache.Ticket, ttl time.Duration,
) ([]convcache.Ticket, convcache.Outcome) {
	began := time.Now()
	displaced, outcome := s.Store.Put(ctx, conversation, ticket, ttl)
	s.took("put", outcome, began)
	s.displaced.Add(int64(len(displaced)))
	return displaced, outcome
}

func (s *Store) took(operation string, outcome convcache.Outcome, began time.Time) {
	m := s.metrics
	m.to.store.Record(context.Background(), time.Since(began).Seconds(), m.store.get(storeLabels{operation, outcome.String()}).record...)
}
