package pins

import (
	"sync/atomic"

	"carryover/server/continuation"
	"carryover/server/record"
)

// Counts returns what was counted until now. Its parts need not be of one moment. What tickets are not about is left out.
func (p *Pins) Counts() record.Counts {
	c := p.counts
	return record.Counts{Piggybacked: c.piggybacked.read(), Own: c.own.read(), HandBacks: c.handBacks.read(), Choices: c.choices.read()}
}

// counts holds the counters of tickets.
type counts struct {
	piggybacked, own releaseCounts
	handBacks        handBackCounts
	choices          choiceCounts
}

type choiceCounts [3]atomic.Uint64 // by continuation.End

func (c *choiceCounts) read() record.TicketChoices {
	return record.TicketChoices{Ticket: c[continuation.Keep].Load(), HandBack: c[continuation.HandBack].Load(), Release: c[continuation.Release].Load()}
}

type releaseCounts struct{ sent, failed, requeued atomic.Uint64 }

func (r *releaseCounts) read() record.Releases {
	return record.Releases{Sent: r.sent.Load(), Failed: r.failed.Load(), Requeued: r.requeued.Load()}
}

// unsent counts a release that was not answered. requeued says that its ticket waits again.
func (r *releaseCounts) unsent(requeued bool) {
	if requeued {
		r.requeued.Add(1)
	} else {
		r.failed.Add(1)
	}
}

type handBackCounts struct{ done, failed, requeued atomic.Uint64 }

func (h *handBackCounts) read() record.HandBacks {
	return record.HandBacks{Done: h.done.Load(), Failed: h.failed.Load(), Requeued: h.requeued.Load()}
}

// ended counts a hand-back.
func (h *handBackCounts) ended(outcome string) {
	switch outcome {
	case handedBack:
		h.done.Add(1)
	case handBackFailed:
		h.failed.Add(1)
	default:
		h.requeued.Add(1)
	}
}
