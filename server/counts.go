package server

import (
	"sync/atomic"

	"carryover/server/record"
)

// Counts returns what was counted until now. Its parts need not be of one moment.
func (s *Server) Counts() record.Counts {
	c := &s.counts
	return record.Counts{
		Piggybacked: c.piggybacked.read(), Own: c.own.read(), HandBacks: c.handBacks.read(),
		Stranded: record.Stranded{Read: c.strandedRead.Load(), Lost: c.strandedLost.Load()},
		GivenUp:  c.givenUp.Load(), Quarantines: c.quarantines.Load(), RetriesDenied: c.retriesDenied.Load(),
		Connections: s.connections(),
	}
}

// counts holds the counters of Counts.
type counts struct {
	piggybacked, own           atomicReleases
	handBacks                  atomicHandBacks
	strandedRead, strandedLost atomic.Uint64
	givenUp                    atomic.Uint64
	quarantines, retriesDenied atomic.Uint64
}

type atomicReleases struct{ sent, failed, requeued atomic.Uint64 }

func (r *atomicReleases) read() record.Releases {
	return record.Releases{Sent: r.sent.Load(), Failed: r.failed.Load(), Requeued: r.requeued.Load()}
}

// unsent counts a release that was not answered. requeued says that its ticket waits again.
func (r *atomicReleases) unsent(requeued bool) {
	if requeued {
		r.requeued.Add(1)
	} else {
		r.failed.Add(1)
	}
}

// stranded counts a hand-over; read says that decode has read it.
func (c *counts) stranded(read bool) {
	if read {
		c.strandedRead.Add(1)
	} else {
		c.strandedLost.Add(1)
	}
}

type atomicHandBacks struct{ done, failed, requeued, tokens atomic.Uint64 }

func (h *atomicHandBacks) read() record.HandBacks {
	return record.HandBacks{Done: h.done.Load(), Failed: h.failed.Load(), Requeued: h.requeued.Load(), Tokens: h.tokens.Load()}
}
