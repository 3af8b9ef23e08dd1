package server

import (
	"context"
	"runtime"

	"carryover/upstream/fleet"
)

// Quarantine puts a start of prefill under quarantine, as a wrong answer of it does, and tells nobody else.
func (s *Server) Quarantine(prefill *fleet.Incarnation) {
	s.lineages.Quarantine(prefill)
}

// CompareExposures is one round of what runs beside the turns, with the tickets that it gives up.
func (s *Server) CompareExposures(ctx context.Context) {
	s.exposures.Compare(ctx)
	for s.exposures.Sweeping() {
		runtime.Gosched()
	}
}
