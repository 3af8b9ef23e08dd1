package upstream

import (
	"sync"
	"time"
)

// heldBack is the longest gap between two looks at a connection that leaves the looks reliable. In a longer gap the
// process or the machine may have stood still, or a slow client may have kept the relay from reading. What the engine
// could not send meanwhile arrives later, because TCP's retransmission timer doubles (RFC 6298, 5.5). So an empty
// connection proves nothing until the same time has passed again. Up to this bound the error stays below TicketSlack
// of package pins.
const heldBack = 2 * time.Second

// arrival keeps a moment at which nothing had arrived yet of what was last read of an answer. The evidence is a look
// that found the connection empty: however long the process pauses between two steps, bytes that leave an empty
// connection later have arrived later. The time that bytes spent on the way does not show; the margins by which
// tickets end before their blocks cover it.
//
// It is safe for concurrent use: the connection reports to it while the stream asks.
type arrival struct {
	mu      sync.Mutex // guards the rest
	after   time.Time  // nothing of what was last read had arrived then
	looked  time.Time  // when the connection was last found empty
	doubted time.Time  // looks from before then prove nothing
	fixed   bool       // bytes of the current read have been seen
}

// begin starts with a leg before anything of it is sent.
func (a *arrival) begin(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.after, a.looked, a.doubted, a.fixed = now, now, time.Time{}, false
}

// next announces a read. drained says that the read can return nothing that was taken from the connection before.
func (a *arrival) next(drained bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fixed = !drained
}

// empty reports that the connection was found empty at a moment that is not before at.
func (a *arrival) empty(at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !at.After(a.looked) { // the look began before the leg
		return
	}
	if gap := Elapsed(a.looked, at); gap > heldBack {
		a.doubted = at.Add(gap)
	}
	a.looked = at
	if !a.fixed && !at.Before(a.doubted) {
		a.after = at
	}
}

// seen reports that bytes were taken from the connection. They are the oldest of the current read and give the whole
// read its age.
func (a *arrival) seen() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fixed = true
}

// last returns a moment at which nothing of the last read had arrived.
func (a *arrival) last() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.after
}
