package kvready

import (
	"log/slog"
	"sync"

	"carryover/upstream"
)

// The defaults of Config's bounds.
const (
	defaultWaits = 1 << 16
	defaultPeers = 1 << 10
)

// Config configures Waits. The zero value is for a single replica.
type Config struct {
	Relay    Relay        // nil if replicas share none
	MaxWaits int          // open arrivals at once; 0 means 65,536. Arrivals beyond it fail
	MaxPeers int          // connections of prefill workers; 0 means 1,024
	Logger   *slog.Logger // nil discards
}

// Waits has the expected arrivals. All methods are safe for concurrent use.
type Waits struct {
	cfg    Config
	counts counts
	queue  chan string // messages to publish; relay.go

	mu   sync.Mutex // guards byID and the waits in it
	byID map[string]*wait

	garbled, surplus, unpublished limited // limit the log lines about these
}

// New returns Waits without any expected arrival.
func New(cfg Config) *Waits {
	if cfg.MaxWaits <= 0 {
		cfg.MaxWaits = defaultWaits
	}
	if cfg.MaxPeers <= 0 {
		cfg.MaxPeers = defaultPeers
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Waits{cfg: cfg, queue: make(chan string, unpublishedAtMost), byID: map[string]*wait{}}
}

// Expect begins to wait for count notifications of id, or for one if count is less. Each id is used once. The caller calls Expect
// before it sends the prefill leg with the id: so no notification can come too early, and notifications of other ids can be dropped.
// The arrival fails at once if the id is empty, has more than 256 bytes or is waited for already, or if Config.MaxWaits are open.
func (w *Waits) Expect(id string, count int) upstream.Arrival {
	if id == "" || len(id) > maxID {
		return refusal{errBadID}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, there := w.byID[id]; there {
		return refusal{errTwice}
	}
	if len(w.byID) >= w.cfg.MaxWaits {
		return refusal{errFull}
	}
	arrival := &wait{waits: w, id: id, left: max(count, 1), done: make(chan struct{})}
	w.byID[id] = arrival
	return arrival
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
		if w.garbled.due() {
			w.cfg.Logger.Warn("what came where prefill workers of LMCache say that KV has arrived is none of their messages")
		}
		return
	case ignored:
		w.counts.ignored.Add(1)
		return
	}
	switch w.apply(n) {
	case effectNone:
		w.counts.unknown.Add(1)
		if mayPublish {
			w.publish(n)
		}
	case effectCounted:
		w.counts.counted.Add(1)
	case effectFailed:
		w.counts.failed.Add(1)
	case effectSurplus:
		w.counts.surplus.Add(1)
		if n.meaning == arrived && w.surplus.due() {
			w.cfg.Logger.Warn("more prefill workers say that the KV of a request has arrived than were expected to, so decode may begin too early")
		}
	}
}

// apply applies a note to the wait for its id.
func (w *Waits) apply(n note) effect {
	w.mu.Lock()
	defer w.mu.Unlock()
	arrival, there := w.byID[n.id]
	if !there {
		return effectNone
	}
	return arrival.apply(n)
}
