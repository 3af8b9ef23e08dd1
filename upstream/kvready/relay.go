package kvready

import (
	"context"
	"time"
)

// unpublishedAtMost is how many messages wait to be published. Redis takes 10,000 a second from one connection, so they are
// those of 0.1 s; what comes beyond is dropped, since replicas that need it wait in vain no longer than their limit.
const unpublishedAtMost = 1024

// publishTimeout is how long one message may take. What takes longer is of no use to a wait.
const publishTimeout = time.Second

// Relay tells the replicas that share it of notifications that are not expected here: LMCache knows one address
// (pd_proxy_host), and behind a name of several replicas a worker is connected to any of them.
type Relay interface {
	// Publish hands a message to Waits.Relayed of the other replicas; whether this one gets it too doesn't matter. It is
	// called by one goroutine, the one of Waits.Run. A message that is delivered twice counts twice, as if another worker
	// had spoken, and decode may begin too early: so nothing that may have been sent is to be sent again.
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

// lost counts a message that no other replica gets.
func (w *Waits) lost() {
	w.counts.unpublished.Add(1)
	if w.unpublished.due() {
		w.cfg.Logger.Warn("notifications that KV has arrived do not reach the other replicas")
	}
}

// Run publishes what is not expected here, until ctx ends, and returns the cause then.
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
