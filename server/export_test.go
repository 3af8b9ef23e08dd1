package server

import "time"

// SpendRetries leaves nothing in the retry budget, and lets nothing come in for an hour.
func (s *Server) SpendRetries() {
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	s.budget.tokens, s.budget.last = 0, time.Now().Add(time.Hour)
}
