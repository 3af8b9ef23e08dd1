package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
)

// readFor is how long a reading counts, on both clocks. A ticket is used only while its engine is known to be alive;
// an older reading is repeated first.
const readFor = 5 * time.Second

// reading is one request for /metrics. All callers that ask meanwhile wait for it.
//
// prometheus_client's process collector exports the start time. It runs in vLLM's API server, which ends when its
// engine does. With several API servers in one instance (--api-server-count, by default as many as data-parallel
// ranks) vLLM leaves this collector out (v1/metrics/prometheus.py), and the incarnation is not known.
type reading struct{ done chan struct{} }

// Current returns the engine's incarnation by a reading of the last five seconds, or by a new one. Readings from
// before the engine last refused or ended a connection do not count, so that a restarted engine is not mistaken for
// the one before; Current checks idle connections for that. It returns an incarnation that is not known if the engine
// does not answer or does not tell one. That too counts for five seconds, so that turns do not queue before an engine
// that does not answer. It is never nil.
func (e *Engine) Current(ctx context.Context) *Incarnation {
	e.fleet.cfg.Client.Check(e.BaseURL)
	s, counts := e.recent()
	for n := 0; !counts && (n == 0 || n < maxReadings && e.doubtful()); n++ {
		e.Refresh(ctx)
		s, counts = e.recent()
	}
	return s
}

// maxReadings is how many readings Current makes at most. Another follows where the connection of a leg ended during one, which counts for
// nothing then: the answer of a turn whose incarnation is not known leaves no ticket, and nobody can release its blocks.
const maxReadings = 3

// doubtful reports whether a connection of the engine has ended since it was read.
func (e *Engine) doubtful() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.doubted
}

// Fresh returns the engine's incarnation by a reading of the last five seconds, and sends nothing. Without such a
// reading it returns an incarnation that is not known. It is never nil.
func (e *Engine) Fresh() *Incarnation {
	s, _ := e.recent()
	return s
}

// Last returns the incarnation that was read last, however long ago, and sends nothing. It is for uses that do no harm
// if the engine has restarted since. It returns an incarnation that is not known if nothing was read since a
// connection was refused, or if the last answer told none. It is never nil.
func (e *Engine) Last() *Incarnation {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.read.IsZero() {
		return e.unknown()
	}
	return e.known
}

// Incarnation returns the incarnation with that id if it was read last, even if that reading counts no more; nil if
// the engine has another one.
func (e *Engine) Incarnation(id string) *Incarnation {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known.Known() && e.known.id == id {
		return e.known
	}
	return nil
}

// lastKnown returns the incarnation that was read last, even if that reading counts no more; nil before the first.
func (e *Engine) lastKnown() *Incarnation {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.known
}

// Refresh reads the engine's /metrics, whatever is known. Called more often than every five seconds, it spares turns
// the wait in Current. It returns when the reading is over, at ReadLimit at the latest, or when ctx ends.
func (e *Engine) Refresh(ctx context.Context) {
	e.fleet.cfg.Client.Check(e.BaseURL) // finds connections that have ended, which would else discard this reading
	e.mu.Lock()
	r := e.under
	if r == nil {
		r = &reading{done: make(chan struct{})}
		e.under = r
		// It goes on without the first caller, because others may wait for it.
		go e.run(context.WithoutCancel(ctx), r)
	}
	e.mu.Unlock()
	wait(ctx, r.done)
}

// wait returns when a question is over or ctx ends.
func wait(ctx context.Context, over <-chan struct{}) {
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// recent returns the incarnation of the last reading; counts says whether that reading still counts.
func (e *Engine) recent() (s *Incarnation, counts bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch now := e.fleet.now(); {
	case !e.read.IsZero() && !e.doubted && upstream.Elapsed(e.read, now) < readFor:
		return e.known, true
	case !e.missed.IsZero() && upstream.Elapsed(e.missed, now) < readFor:
		return e.unknown(), true
	}
	return e.unknown(), false
}

// run runs a reading and stores its result, unless a connection was refused meanwhile.
func (e *Engine) run(ctx context.Context, r *reading) {
	began, ours := e.fleet.now(), int(e.inFlight.Load()+e.handBacks.Load())
	ctx, cancel := context.WithTimeout(ctx, e.fleet.cfg.ReadLimit)
	defer cancel()
	told, err := e.readFacts(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	defer close(r.done)
	if e.under != r && (e.under != nil || err == nil) {
		return
	}
	e.under = nil // unless a failure of this very reading has reset it already
	defer e.show()
	if err == nil {
		e.load = load{Use: told.Use, others: max(0, told.Use.Running+told.Use.Waiting-ours), read: began}
	}
	switch {
	case err == nil && told.Incarnation != "":
		e.become(told)
		e.read, e.missed, e.doubted = began, time.Time{}, false
	case err == nil || errors.Is(err, syscall.ECONNREFUSED):
		// Nothing answers there, or another process.
		e.read, e.missed = time.Time{}, began
	default:
		// A late answer does not refute what was read a moment ago.
		e.missed = began
	}
}

func (e *Engine) readFacts(ctx context.Context) (told facts.Metrics, err error) {
	defer func() {
		if p := recover(); p != nil { // a defect in reading an answer must not end the process
			told, err = facts.Metrics{}, fmt.Errorf("read metrics: panic: %v", p)
		}
	}()
	status, text, err := e.fleet.cfg.Client.Fetch(ctx, e.Instance(), "/metrics", "", facts.MaxMetrics)
	if err != nil {
		return facts.Metrics{}, fmt.Errorf("read metrics: %w", err)
	}
	e.heard()
	if status != http.StatusOK {
		return facts.Metrics{}, fmt.Errorf("read metrics: status %d", status)
	}
	rank := ""
	if e.Ranked {
		rank = strconv.Itoa(e.Rank)
	}
	return facts.ReadMetrics(bytes.NewReader(text), rank)
}

// become makes a reading's incarnation the engine's. The same id is the same Incarnation, whatever was forgotten in
// between. It needs e.mu.
func (e *Engine) become(told facts.Metrics) {
	e.blank = nil
	old := e.known
	if old == nil || old.id != told.Incarnation {
		e.known = newIncarnation(e, told.Incarnation)
		e.known.quarantined = told.Incarnation == e.quarantinedID
		if old != nil {
			old.end()
			e.legSpeed, e.ejection = legSpeed{}, ejection{} // a restart is how slow engines are mended
			e.show()
		}
	}
	e.known.blockSize.Store(int64(told.BlockSize))
	e.known.PrefixCache.Told(told.Caching)
}

// unknown returns the Incarnation that stands for any whose id is not known: the same one until an id is read. It
// needs e.mu.
func (e *Engine) unknown() *Incarnation {
	if e.blank == nil {
		e.blank = newIncarnation(e, "")
	}
	return e.blank
}
