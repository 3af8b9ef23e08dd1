package kvready

import (
	"context"
	"time"
)

// Relay passes notifications that are not expected here to the replicas that share it. LMCache knows one address (pd_proxy_host);
// if that is a name for several replicas, a worker is connected to any one of them.
type Relay interface {
	// Publish sends a message to Waits.Relayed of the other replicas; this replica may get it too. Only the goroutine of Waits.Run
	// calls Publish. Publish must not repeat a message that may have been sent: a message that arrives twice counts as the
	// notifications of two workers, and decode may begin too early.
	Publish(ctx context.Context, message string) error
}

// unpublishedAtMost is the length of the queue. Redis takes 10,000 messages a second from one connection, so a full queue takes 0.1
// s. Further messages are dropped; a replica that needs one waits until its own time limit.
const unpublishedAtMost = 1024

// publishTimeout bounds the publishing of one message. A later message is of no use to a wait.
const publishTimeout = time.Second

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

func (w *Waits) lost() {
	w.counts.unpublished.Add(1)
	if w.unpublished.Due() {
		w.cfg.Logger.Warn("notifications that KV has arrived do not reach the other replicas")
	}
}

// Run publishes the notifications that are not expected here, until ctx ends; it returns the cause.
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

func (w *Waits) send(ctx context.Context, message string) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	return w.cfg.Relay.Publish(ctx, message)
}
