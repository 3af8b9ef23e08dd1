package server

import "sync/atomic"

// Counts are what has happened since the start and no turn's record tells.
type Counts struct {
	// Ridden are releases that were to ride on legs of turns, Own those that had legs of their own.
	Ridden, Own Releases
	HandBacks   HandBacks
	// Stranded are hand-overs of prefill whose decode leg did not come to its answer.
	Stranded Stranded
	// GivenUp are tickets that were taken out of the store because they pinned more than their share.
	GivenUp uint64
	// Quarantines are starts of prefill that this replica has found to compute other ids than they were sent.
	Quarantines uint64
	// RetriesDenied are attempts that were not made, because retries are limited to a share of the turns.
	RetriesDenied uint64
	// Connections are those of clients that were closed for the sake of others.
	Connections Connections
}

// Releases says how releases ended. Each unused ticket that leaves the line ends here once: it is in Sent or Failed, or in Kept and
// back in the line.
type Releases struct {
	Sent     uint64 // the leg was answered
	Failed   uint64 // the leg may have been seen by an engine, and failed; a leg of our own tries once more
	Requeued uint64 // nothing of the leg was sent, or the engine refused it; the ticket waits again
}

// Stranded says what became of hand-overs whose client left, or whose decode leg failed.
type Stranded struct {
	Read uint64 // decode read prefill's blocks after all, for an answer that nobody gets
	Lost uint64 // they wait for their lease to end
}

// Counts returns what was counted until now. Its parts need not be of one moment.
func (s *Server) Counts() Counts {
	c := &s.counts
	return Counts{
		Ridden: c.ridden.read(), Own: c.own.read(), HandBacks: c.handBacks.read(),
		Stranded: Stranded{Read: c.strandedRead.Load(), Lost: c.strandedLost.Load()},
		GivenUp:  c.givenUp.Load(), Quarantines: c.quarantines.Load(), RetriesDenied: c.retriesDenied.Load(),
		Connections: s.connections(),
	}
}

// counts is Counts while it grows.
type counts struct {
	ridden, own                atomicReleases
	handBacks                  atomicHandBacks
	strandedRead, strandedLost atomic.Uint64
	givenUp                    atomic.Uint64
	quarantines, retriesDenied atomic.Uint64
}

type atomicReleases struct{ sent, failed, requeued atomic.Uint64 }

func (r *atomicReleases) read() Releases {
	return Releases{Sent: r.sent.Load(), Failed: r.failed.Load(), Requeued: r.requeued.Load()}
}

// unsent counts a release that did not come to its end; kept says that its ticket waits again.
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

// HandBacks says how hand-backs ended. One that was sent is a ticket's last.
type HandBacks struct {
	Done     uint64 // prefill has read the KV, and decode is free
	Failed   uint64 // the leg may have been seen by an engine, and failed; the blocks are released some seconds later
	Requeued uint64 // nothing of the leg was sent, or the engine refused it; it is tried again, or released
	Tokens   uint64 // of those that are done
}

type atomicHandBacks struct{ done, failed, requeued, tokens atomic.Uint64 }

func (h *atomicHandBacks) read() HandBacks {
	return HandBacks{Done: h.done.Load(), Failed: h.failed.Load(), Requeued: h.requeued.Load(), Tokens: h.tokens.Load()}
}
