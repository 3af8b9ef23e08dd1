package kvready

import (
	"sync/atomic"
	"time"
)

// Stats counts the notifications since the process started.
//
//	Received = Counted + Failed + Surplus + Unknown + Ignored + Malformed
//
// With a Relay, each Unknown notification of a worker is also Published or Unpublished, or still in the queue.
type Stats struct {
	Received  uint64 // frames of workers and messages of replicas
	Counted   uint64 // were waited for
	Failed    uint64 // ended a wait in failure
	Surplus   uint64 // came for a wait that was over but not closed, or came again from the same rank
	Unknown   uint64 // have an id that is not expected here
	Ignored   uint64 // LMCache messages that are not for the proxy
	Malformed uint64 // not messages of LMCache

	Relayed     uint64 // the part of Received that came from replicas
	Published   uint64 // handed to the Relay
	Unpublished uint64 // not handed to the Relay, because the queue was full or the Relay failed

	Waiting int // arrivals that are open now
}

// counts has the running counters behind Stats.
type counts struct {
	received, counted, failed, surplus, unknown, ignored, malformed atomic.Uint64
	relayed, published, unpublished                                 atomic.Uint64
}

// Stats returns the counts. They are read one by one, so the equation may be off by the notes that come meanwhile.
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

// limited permits one log line a minute, because peers can cause any number of them.
type limited struct{ last atomic.Int64 } // Unix seconds

func (l *limited) due() bool {
	now, last := time.Now().Unix(), l.last.Load()
	return now-last >= 60 && l.last.CompareAndSwap(last, now)
}
