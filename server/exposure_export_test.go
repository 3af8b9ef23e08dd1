package server

import (
	"context"
	"runtime"

	"carryover/server/lineage"
	"carryover/server/quarantine"
	"carryover/upstream/fleet"
)

// Quarantine puts a start of prefill under quarantine, as a wrong answer of it does, and tells nobody else.
func (s *Server) Quarantine(prefill *fleet.Incarnation) {
	s.turns.lineages.Quarantine(prefill)
}

// CompareExposures is one round of what runs beside the turns, with the tickets that it gives up.
func (s *Server) CompareExposures(ctx context.Context) {
	s.exposures.Compare(ctx)
	for s.exposures.Sweeping() {
		runtime.Gosched()
	}
}

// IncarnationName is what replicas call an incarnation alike.
func IncarnationName(url, incarnation string) string {
	return quarantine.IncarnationName(lineage.Address{URL: url}, incarnation)
}
