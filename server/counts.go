package server

import (
	"sync/atomic"

	"carryover/server/record"
)

// Counts returns what was counted until now. Its parts need not be of one moment.
func (s *Server) Counts() record.Counts {
	c, pinned := &s.counts, s.pins.Counts()
	counted := record.Counts{
		Piggybacked: pinned.Piggybacked, Own: pinned.Own, HandBacks: pinned.HandBacks, GivenUp: pinned.GivenUp,
		Stranded:    record.Stranded{Read: c.strandedRead.Load(), Lost: c.strandedLost.Load()},
		Quarantines: s.turns.legs.lineages.Count(), RetriesDenied: c.retriesDenied.Load(),
	}
	if clients := s.clients.Load(); clients != nil {
		counted.Connections = record.Connections(clients.Counts())
	}
	return counted
}

// counts holds the counters of Counts.
type counts struct {
	strandedRead, strandedLost atomic.Uint64
	retriesDenied              atomic.Uint64
}

// stranded counts a hand-over; read says that decode has read it.
func (c *counts) stranded(read bool) {
	if read {
		c.strandedRead.Add(1)
	} else {
		c.strandedLost.Add(1)
	}
}
