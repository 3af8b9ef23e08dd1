package server

import (
	"context"
	"runtime"

	"carryover/server/lineage"
	"carryover/upstream/fleet"
)

// Quarantine puts a start of prefill under quarantine, as a wrong answer of it does, and tells nobody else.
func (s *Server) Quarantine(prefill *fleet.Incarnation) {
	prefill.Quarantine()
	s.turns.lineages.records.Quarantine(addressOf(prefill), prefill.ID())
}

// CompareExposures is one round of what runs beside the turns, with the tickets that it gives up.
func (s *Server) CompareExposures(ctx context.Context) {
	s.exposures.compare(ctx)
	for s.exposures.sweeping.Load() {
		runtime.Gosched()
	}
}

// IncarnationName is what replicas call an incarnation alike.
func IncarnationName(url, incarnation string) string {
	return incarnationName(lineage.Address{URL: url}, incarnation)
}
