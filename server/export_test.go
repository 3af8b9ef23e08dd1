package server

import (
	"context"
	"time"
)

// SpendRetries leaves nothing in the retry budget, and lets nothing come in for an hour.
func (s *Server) SpendRetries() {
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	s.budget.tokens, s.budget.last = 0, time.Now().Add(time.Hour)
}

// CompareBars is one round of what runs beside the turns. said is when each barred instance was mentioned last.
func (s *Server) CompareBars(ctx context.Context, said map[string]time.Time) {
	s.compareBars(ctx, said)
}

// BarAgain is how often a barred instance is mentioned.
const BarAgain = barAgain

// Inflight is the memory that request bodies take, and how many clients it is booked on.
func (s *Server) Inflight() (bytes int64, clients int) {
	s.inflight.mu.Lock()
	defer s.inflight.mu.Unlock()
	return s.inflight.total, len(s.inflight.clients)
}

// ReleaseOne releases one ticket by a leg of our own.
func (s *Server) ReleaseOne(ctx context.Context, decode string) bool {
	return s.releaseOne(ctx, decode)
}
