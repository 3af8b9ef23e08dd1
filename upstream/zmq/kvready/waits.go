// Package kvready waits for the notifications that KV has arrived at decode. LMCache's prefill workers send them over ZeroMQ to
// pd_proxy_host:pd_proxy_port of their configuration, where this package listens.
//
// It promises that
//
//   - a notification can end a wait, and does nothing else. A wait begins before its prefill leg is sent, so a notification whose id
//     is not expected is dropped (waits.go): it is stale (after a restart of Carryover libzmq delivers what it has kept), foreign, or
//     belongs to another replica. The number of waits bounds the memory, whatever peers send;
//   - a wait is over after the expected number of notifications, one from each prefill worker. The workers can't be told apart
//     (LMCache 0.5.6, pd_backend.py: a notification has only the type and the request id). Notifications may come before the call of
//     Ready or after it (measured: from 182 ms before prefill's answer to 1,000 ms after it);
//   - no message of a peer causes a panic or blocks, and no peer disturbs another (note.go, package zmtp);
//   - it passes an unexpected notification at most once to a Relay, where replicas share one (relay.go).
//
// It ignores any message that is not a notification: LMCache's CancelNotif has a request id too, and says the opposite. An engine
// that fails to move the KV sends nothing, so the context of Ready limits each wait.
package kvready

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"carryover/upstream"
	"carryover/upstream/zmq/zmtp"
)

const (
	maxWaits = 1 << 16 // open arrivals at once; those beyond it fail
	maxPeers = 1 << 10 // connections of prefill workers
)

// Config configures Waits. The zero value is for a single replica.
type Config struct {
	Relay  Relay // nil if replicas share none
	Logger *slog.Logger
}

// Waits has the expected arrivals. All methods are safe for concurrent use.
type Waits struct {
	cfg    Config
	counts counts
	queue  chan string // messages to publish; relay.go

	mu   sync.Mutex // guards byID and the waits in it
	byID map[string]*wait

	garbled, surplus, unpublished zmtp.Seldom // limit the log lines about these
}

// New returns Waits without any expected arrival.
func New(cfg Config) *Waits {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Waits{cfg: cfg, queue: make(chan string, unpublishedAtMost), byID: map[string]*wait{}}
}

// Expect begins to wait for count notifications of id, at least one. Each id is used once. The caller calls Expect before it sends
// the prefill leg with the id, so no notification can come too early. The arrival fails at once if the id is empty, has more than
// 256 bytes or is waited for already, or if 65,536 are open.
func (w *Waits) Expect(id string, count int) upstream.Arrival {
	arrival := &wait{waits: w, id: id, left: max(count, 1), done: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case id == "" || len(id) > maxID:
		arrival.end(errBadID)
	case w.byID[id] != nil:
		arrival.end(errTwice)
	case len(w.byID) >= maxWaits:
		arrival.end(errFull)
	default:
		w.byID[id] = arrival
	}
	return arrival
}

// Serve listens to prefill workers on l until ctx ends (it then returns the cause) or l is closed. It closes l. A worker is a PUSH
// socket that connects when it starts and sends a message of one frame for each request. If a message has more frames, each is read
// as a notification.
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

// Notify takes one frame of a prefill worker. The frame may contain any bytes.
func (w *Waits) Notify(frame []byte) {
	w.take(read(frame), true)
}

// Relayed takes a message that a replica has published. It is never published again.
func (w *Waits) Relayed(message string) {
	w.counts.relayed.Add(1)
	w.take(readMessage(message), false)
}

// take applies a note to its wait. If there is none and mayPublish is true, it queues the note for the other replicas.
func (w *Waits) take(n note, mayPublish bool) {
	w.counts.received.Add(1)
	switch n.meaning {
	case malformed:
		w.counts.malformed.Add(1)
		if w.garbled.Due() {
			w.cfg.Logger.Warn("a message at the port for LMCache's notifications is not a notification")
		}
		return
	case ignored:
		w.counts.ignored.Add(1)
		return
	}
	w.mu.Lock()
	arrival, counter := w.byID[n.id], &w.counts.unknown
	if arrival != nil {
		counter = arrival.apply(n)
	}
	w.mu.Unlock()
	counter.Add(1)
	switch {
	case arrival == nil && mayPublish:
		w.publish(n)
	case counter == &w.counts.surplus && n.meaning == arrived && w.surplus.Due():
		w.cfg.Logger.Warn("more notifications than expected for the KV of one request; decode may begin too early")
	}
}

// wait is one expected arrival. Waits.mu guards all fields but done; err is written before done is closed.
type wait struct {
	waits *Waits
	id    string
	left  int     // missing notifications
	ranks []int64 // from notes that name a rank
	err   error
	done  chan struct{}
}

// An arrival also fails when prefill reports a failure.
var (
	errBadID  = errors.New("wait for KV: no id, or one that is too long")
	errTwice  = errors.New("wait for KV: the id is waited for already")
	errFull   = errors.New("wait for KV: too many waits")
	errClosed = errors.New("wait for KV: given up")
)

// apply needs the lock of Waits. It returns the note's counter.
func (a *wait) apply(n note) *atomic.Uint64 {
	if a.over() || n.meaning == ranked && slices.Contains(a.ranks, n.rank) {
		return &a.waits.counts.surplus
	}
	switch n.meaning {
	case failed:
		a.end(fmt.Errorf("prefill says that the KV will not arrive: %s", n.state))
		return &a.waits.counts.failed
	case ranked:
		a.ranks = append(a.ranks, n.rank) // at most as many as the expected notifications
	}
	if a.left--; a.left == 0 {
		a.end(nil)
	}
	return &a.waits.counts.counted
}

func (a *wait) over() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// end needs the lock of Waits.
func (a *wait) end(err error) {
	a.err = err
	close(a.done)
}

// Ready returns nil when all notifications have come, an error when prefill gives up, the cause of ctx when ctx ends first, and an
// error after Close. Several goroutines may call it, also repeatedly.
func (a *wait) Ready(ctx context.Context) error {
	select {
	case <-a.done:
		return a.err
	default:
	}
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close ends the wait and forgets the id.
func (a *wait) Close() {
	a.waits.mu.Lock()
	defer a.waits.mu.Unlock()
	if a.waits.byID[a.id] == a {
		delete(a.waits.byID, a.id)
	}
	if !a.over() {
		a.end(errClosed)
	}
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
	Malformed uint64

	Relayed     uint64 // the part of Received that came from replicas
	Published   uint64 // handed to the Relay
	Unpublished uint64 // the queue was full or the Relay failed

	Waiting int // open arrivals
}

type counts struct {
	received, counted, failed, surplus, unknown, ignored, malformed atomic.Uint64
	relayed, published, unpublished                                 atomic.Uint64
}

// Stats reads the counts one by one, so the equation may be off by the notes that come meanwhile.
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
