package kvready

import (
	"sync/atomic"
	"time"
)

// Stats are what has come since the start.
//
//	Received = Counted + Failed + Surplus + Unknown + Ignored + Malformed
//
// Of Unknown those that came from a worker are Published or Unpublished, where there is a Relay, or still in the queue.
type Stats struct {
	Received  uint64 // frames of workers and messages of replicas
	Counted   uint64 // were waited for
	Failed    uint64 // have ended a wait in failure
	Surplus   uint64 // came for a wait that was over, but not closed, or again from a rank
	Unknown   uint64 // are not expected here
	Ignored   uint64 // are for others than the proxy
	Malformed uint64 // are no messages of LMCache

	Relayed     uint64 // of Received: messages of replicas
	Published   uint64 // handed to the Relay
	Unpublished uint64 // should have been: the queue was full, or the Relay failed

	Waiting int // arrivals that are not closed, now
}

// counts are the Stats as they grow.
type counts struct {
	received, counted, failed, surplus, unknown, ignored, malformed atomic.Uint64
	relayed, published, unpublished                                 atomic.Uint64
}

// Stats returns the counts. While notes come they may differ from each other by those.
func (w *Waits) Stats() Stats {
	w.mu.Lock()
	waiting := len(w.byID)
	w.mu.Unlock()
	c := &w.counts
	return Stats{
		Received: c.received.Load(), Counted: c.counted.Load(), Failed: c.failed.Load(), Surplus: c.surplus.Load(),
		Unknown: c.unknown.Load(), Ignored: c.ignored.Load(), Malformed: c.malformed.Load(),
		Relayed: c.relayed.Load(), Published: c.published.Load(), Unpublished: c.unpublished.Load(),
		Waiting: waiting,
	}
}

// limited lets a line through once a minute: peers can bring about as many as they like.
type limited struct{ last atomic.Int64 } // Unix seconds

func (l *limited) due() bool {
	now, last := time.Now().Unix(), l.last.Load()
	return now-last >= 60 && l.last.CompareAndSwap(last, now)
}
