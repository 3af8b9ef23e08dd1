package kvready

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"carryover/upstream/zmq/zmtp"
)

// Serve listens to prefill workers on l until ctx ends or l is closed. When ctx ends it returns the cause. It closes l. A worker
// is a PUSH socket that connects when it starts and sends a message of one frame for each request. If a message has more frames,
// each is read as a notification.
func (w *Waits) Serve(ctx context.Context, l net.Listener) error {
	server := zmtp.Server{
		Limits: zmtp.Limits{MaxPeers: maxPeers}, Logger: w.cfg.Logger,
		Handle: func(frames [][]byte) {
			for _, frame := range frames {
				w.Notify(frame)
			}
		},
	}
	return server.Serve(ctx, l)
}

// unpublishedAtMost is how many messages may wait to be published. Redis takes 10,000 a second from one connection, so a full queue
// takes 0.1 s. Further messages are dropped; a replica that needs one of them waits until its own time limit.
const unpublishedAtMost = 1024

// publishTimeout is how long publishing one message may take. A later message is of no use to a wait.
const publishTimeout = time.Second

// Relay passes notifications that are not expected here to the replicas that share it. LMCache knows one address (pd_proxy_host);
// if that is a name for several replicas, a worker is connected to any one of them.
type Relay interface {
	// Publish hands a message to Waits.Relayed of the other replicas; this replica may get it too. Only the goroutine of Waits.Run
	// calls Publish. Publish must not repeat a message that may have been sent: a message that is delivered twice counts as the
	// notifications of two workers, and decode may begin too early.
	Publish(ctx context.Context, message string) error
}

// publish queues a note for the relay, or drops it.
func (w *Waits) publish(n note) {
	if w.cfg.Relay == nil {
		return
	}
	select {
	case w.queue <- n.message():
	default:
		w.lost()
	}
}

// lost counts a message that is not published.
func (w *Waits) lost() {
	w.counts.unpublished.Add(1)
	if w.unpublished.Due() {
		w.cfg.Logger.Warn("notifications that KV has arrived do not reach the other replicas")
	}
}

// Run publishes the notifications that are not expected here. It runs until ctx ends, and returns the cause.
func (w *Waits) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case message := <-w.queue:
			if err := w.send(ctx, message); err != nil {
				w.lost()
				w.cfg.Logger.Debug("a notification is not published", "error", err)
				continue
			}
			w.counts.published.Add(1)
		}
	}
}

// send publishes one message.
func (w *Waits) send(ctx context.Context, message string) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	return w.cfg.Relay.Publish(ctx, message)
}

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
