package upstream

import (
	"sync"
	"time"
)

// heldBack is how long a connection may go without being found empty until that
// says less. The process or its machine may have stood still, or a slow client may
// have kept the relay from reading; what the engine could not send meanwhile comes
// later, and TCP's retransmission timer doubles (RFC 6298, 5.5). So an empty
// connection proves nothing until as much time again has passed. Below this bound
// the error stays below ticketSlack of package server.
const heldBack = 2 * time.Second

// arrival knows a moment at which nothing had arrived yet of what was last read of
// an answer. The evidence is that its connection was found empty then: time may
// pass between any two steps of a process, but what comes out of an empty
// connection later has come in later. How long the bytes were on their way does not
// show; the margins by which tickets end before their blocks cover that.
//
// It is safe for concurrent use: the connection reports to it while the stream asks.
type arrival struct {
	mu      sync.Mutex // guards the rest
	after   time.Time  // nothing had arrived of what was last read
	looked  time.Time  // the connection was last found empty
	doubted time.Time  // what it was found before then proves nothing
	fixed   bool       // bytes of what is being read have been seen
}

// begin starts with a leg of which nothing has been sent.
func (a *arrival) begin(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.after, a.looked, a.doubted, a.fixed = now, now, time.Time{}, false
}

// next announces a read. drained says that it can return nothing that was taken
// from the connection before.
func (a *arrival) next(drained bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fixed = !drained
}

// empty reports that the connection was found empty, not before at.
func (a *arrival) empty(at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !at.After(a.looked) { // a look that began before the leg
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

// seen reports that bytes were taken from the connection. The rest of what is being
// read has the age of these, the oldest.
func (a *arrival) seen() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fixed = true
}

// last returns the moment.
func (a *arrival) last() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.after
}
