package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// Facts are what /metrics of an instance tells about one start of it.
type Facts struct {
	// Incarnation is process_start_time_seconds as it was written. It is compared
	// and never computed with.
	Incarnation string
	// BlockSize is how many tokens a KV block holds, 0 if that is not known or
	// differs between the engines of one instance.
	BlockSize int
	// RecentRead is when the reading began that gave these facts.
	RecentRead time.Time
}

// factsFor is how long a reading counts, on both clocks. A ticket is used only while its
// engine is known to be alive; what was read longer ago is read again.
const factsFor = 5 * time.Second

// Incarnations knows which start of each instance is alive. vLLM exports the
// start time with prometheus_client's process collector, from the API server that
// also ends when its engine does. With several API servers in one instance
// (--api-server-count, by default as many as data-parallel ranks) that collector
// is left out (v1/metrics/prometheus.py) and the incarnation is not known.
//
// It is safe for concurrent use.
type Incarnations struct {
	client *Client
	now    func() time.Time
	limit  time.Duration // of one reading

	mu    sync.Mutex // guards known and what it holds
	known map[string]*alive
}

// alive is what is known of one instance.
type alive struct {
	facts  Facts     // of the last reading that gave an incarnation
	failed time.Time // when the last reading began that gave none
	under  *reading  // the reading under way, nil if none
}

// reading is one request for /metrics that everybody waits for who asks meanwhile.
type reading struct{ done chan struct{} }

// NewIncarnations returns an empty memory that reads through client. Prometheus
// scrapes vLLM within milliseconds; limit leaves room for an API server that is
// busy.
func NewIncarnations(client *Client, limit time.Duration) *Incarnations {
	return &Incarnations{client: client, now: time.Now, limit: limit, known: map[string]*alive{}}
}

// Current returns what was read of an instance within the last five seconds, or
// reads it now. ok is false if the instance could not be asked or does not tell
// its incarnation; that holds for five seconds too, so that turns do not queue
// before an instance that does not answer.
func (i *Incarnations) Current(ctx context.Context, instance *Instance) (facts Facts, ok bool) {
	facts, ok, known := i.recent(instance)
	if known {
		return facts, ok
	}
	i.Refresh(ctx, instance)
	facts, ok, _ = i.recent(instance)
	return facts, ok
}

// Known returns what was read of an instance within the last five seconds, and asks
// nothing. ok is false if there is no such reading, or none that told the
// incarnation.
func (i *Incarnations) Known(instance *Instance) (facts Facts, ok bool) {
	facts, ok, _ = i.recent(instance)
	return facts, ok
}

// Last returns what was last read of an instance, however long ago, and asks nothing:
// for uses that do no harm if the instance has been restarted meanwhile. It is the zero
// Facts if nothing is known, or if the last answer did not tell the incarnation.
func (i *Incarnations) Last(instance *Instance) Facts {
	i.mu.Lock()
	defer i.mu.Unlock()
	if a := i.known[instance.BaseURL]; a != nil {
		return a.facts
	}
	return Facts{}
}

// Refresh reads an instance's /metrics, whatever is known. Called more often than
// every five seconds it spares turns the wait in Current. It returns when the
// reading is over, at the limit at the latest, or when ctx ends.
func (i *Incarnations) Refresh(ctx context.Context, instance *Instance) {
	i.mu.Lock()
	a := i.known[instance.BaseURL]
	if a == nil {
		if len(i.known) >= maxRemembered {
			clear(i.known)
		}
		a = &alive{}
		i.known[instance.BaseURL] = a
	}
	r := a.under
	if r == nil {
		r = &reading{done: make(chan struct{})}
		a.under = r
		// Others may wait for it when the first caller has gone.
		go i.read(context.WithoutCancel(ctx), instance, r)
	}
	i.mu.Unlock()
	select {
	case <-r.done:
	case <-ctx.Done():
	}
}

// Forget drops what is known of an instance. Call it when its connection was
// refused: whatever answers there next is another start. A reading under way
// counts no more.
func (i *Incarnations) Forget(instance *Instance) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.known, instance.BaseURL)
}

// recent returns what is known and still counts.
func (i *Incarnations) recent(instance *Instance) (facts Facts, ok, known bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	a := i.known[instance.BaseURL]
	switch {
	case a == nil:
		return Facts{}, false, false
	case !a.facts.RecentRead.IsZero() && Elapsed(a.facts.RecentRead, i.now()) < factsFor:
		return a.facts, true, true
	case !a.failed.IsZero() && Elapsed(a.failed, i.now()) < factsFor:
		return Facts{}, false, true
	}
	return Facts{}, false, false
}

// read runs a reading and files what it gave, unless Forget came between.
func (i *Incarnations) read(ctx context.Context, instance *Instance, r *reading) {
	began := i.now()
	ctx, cancel := context.WithTimeout(ctx, i.limit)
	defer cancel()
	facts, err := i.ask(ctx, instance)
	facts.RecentRead = began
	i.mu.Lock()
	defer i.mu.Unlock()
	defer close(r.done)
	a := i.known[instance.BaseURL]
	if a == nil || a.under != r {
		return
	}
	a.under = nil
	switch {
	case err == nil && facts.Incarnation != "":
		a.facts, a.failed = facts, time.Time{}
	case err == nil || errors.Is(err, syscall.ECONNREFUSED):
		// Nobody is there, or somebody else.
		a.facts, a.failed = Facts{}, began
	default:
		// A late answer makes nothing untrue that was read a moment ago.
		a.failed = began
	}
}

func (i *Incarnations) ask(ctx context.Context, instance *Instance) (facts Facts, err error) {
	defer func() {
		if p := recover(); p != nil { // a defect in reading an answer must not end the process
			facts, err = Facts{}, fmt.Errorf("read metrics: panic: %v", p)
		}
	}()
	status, text, err := i.client.Fetch(ctx, instance, "/metrics", "", maxMetrics)
	if err != nil {
		return Facts{}, fmt.Errorf("read metrics: %w", err)
	}
	if status != http.StatusOK {
		return Facts{}, fmt.Errorf("read metrics: status %d", status)
	}
	return readFacts(bytes.NewReader(text))
}
