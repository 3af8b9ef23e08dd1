package kvready

import (
	"log/slog"
	"sync"

	"carryover/upstream"
)

// The bounds of a Config that leaves them out.
const (
	defaultWaits = 1 << 16
	defaultPeers = 1 << 10
)

// Config is what Waits need. The zero value is a replica alone.
type Config struct {
	Relay    Relay        // nil where no replicas share one
	MaxWaits int          // at once; 0 means 65,536, and what is expected beyond fails
	MaxPeers int          // connections of prefill workers; 0 means 1,024
	Logger   *slog.Logger // nil discards
}

// Waits are the arrivals that are expected. All methods are safe for concurrent use.
type Waits struct {
	cfg    Config
	counts counts
	queue  chan string // what is to be published; relay.go

	mu   sync.Mutex // guards byID and the waits in it
	byID map[string]*wait

	garbled, surplus, unpublished limited // lines about these
}

// New returns Waits for nothing.
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

// Expect begins to wait for count notifications of id, and for one if count is less. It is called before the prefill leg is
// sent that has the id, which is used once: no notification comes too early then, and none of an id that isn't waited for is
// worth keeping. The arrival of an id that is waited for already, has none or more than 256 bytes, or is beyond
// Config.MaxWaits, fails at once.
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

// Notify takes one frame of a prefill worker, of any bytes.
func (w *Waits) Notify(frame []byte) {
	w.take(read(frame), true)
}

// Relayed takes what a replica has published. It is never published again.
func (w *Waits) Relayed(message string) {
	w.counts.relayed.Add(1)
	w.take(readMessage(message), false)
}

// take has a note take effect, or hands it to the other replicas if it may.
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

// apply applies a note to the wait for it.
func (w *Waits) apply(n note) effect {
	w.mu.Lock()
	defer w.mu.Unlock()
	arrival, there := w.byID[n.id]
	if !there {
		return effectNone
	}
	return arrival.apply(n)
}
