package upstream

import "time"

// heldBack is the longest time between two reads that left nothing behind for which the second is evidence at once. In
// a longer one the process or the machine may have stood still, or a slow client may have kept the relay from reading.
// What the engine could not send meanwhile comes later: as long again, because TCP's retransmission timer doubles
// (RFC 6298, 5.5). Up to this bound the error stays below TicketSlack of package pins.
const heldBack = 2 * time.Second

// age finds a moment at which nothing had arrived yet of what the reads of a connection return next. A ticket's time
// counts from it, because the time of decode starts when decode finishes, which the proxy may notice minutes later.
//
// The evidence is a read that returned less than it could: it took all that had arrived when it began, so what is read
// afterwards arrived later, however long the process stands still between two steps. How long a read took says nothing:
// one that finds its bytes is slow too on a machine that is short of CPU. The read before the last one counts, because
// part of what the last one took may not have been returned yet: crypto/tls and package http1 hold it. So an answer
// seems older than it is by the time between three reads. The time that bytes spent on the way does not show; the
// margins by which tickets end before their blocks cover it.
type age struct {
	before  time.Time // nothing had arrived then of what is returned next
	emptied time.Time // nothing had arrived then of what is read next
	last    time.Time // when the last read began that left nothing behind
	doubted time.Time // reads from before then are no evidence
}

// begin starts with a leg, before anything of it is sent.
func (a *age) begin(leg time.Time) { *a = age{before: leg, emptied: leg, last: leg} }

// read takes note of a read that began at a moment, and whether it returned less than it could.
func (a *age) read(began time.Time, less bool) {
	a.before = a.emptied
	if !less {
		return
	}
	if gap := Elapsed(a.last, began); gap > heldBack {
		a.doubted = began.Add(gap)
	}
	a.last = began
	if !began.Before(a.doubted) {
		a.emptied = began
	}
}

// Elapsed returns how long before now a moment was, negative if it is still to come,
// by the clock that says longer: CLOCK_MONOTONIC stands still while a machine is
// suspended, and the wall clock can be set back.
func Elapsed(since, now time.Time) time.Duration {
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}
