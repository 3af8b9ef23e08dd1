package server

import (
	"context"
	"runtime"

	"carryover/upstream/fleet"
)

// Caught puts a start of prefill under quarantine, as a wrong answer to a leg of now does, and tells no other replica.
func (s *Server) Caught(prefill *fleet.Incarnation) { s.epoch.Caught(prefill, s.epoch.Now(), "test") }

// Sweep is one round of what runs beside the turns, with the tickets that it gives up.
func (s *Server) Sweep(ctx context.Context) {
	s.quarantines.Compare(ctx)
	for s.quarantines.Sweeping() {
		runtime.Gosched()
	}
}
