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
)

// readFor is how long a reading counts, on both clocks. A ticket is used only while its
// engine is known to be alive; what was read longer ago is read again.
const readFor = 5 * time.Second

// reading is one request for /metrics. All callers that ask meanwhile wait for it.
//
// vLLM exports the start time with prometheus_client's process collector, from the API
// server that also ends when its engine does. With several API servers in one instance
// (--api-server-count, by default as many as data-parallel ranks) that collector
// is left out (v1/metrics/prometheus.py) and the incarnation is not known.
type reading struct{ done chan struct{} }

// Current returns the incarnation that was read within the last five seconds, or reads it now. What was read before the engine refused or
// ended a connection counts no more, so that one which was restarted since is not taken for itself: a connection that is kept is
// looked at.
// It is one that is not known if the engine could not be asked or does not tell; that
// holds for five seconds too, so that turns do not queue before an engine that does not
// answer. It is never nil.
func (e *Engine) Current(ctx context.Context) *Incarnation {
	e.fleet.cfg.Client.Check(e.BaseURL)
	s, counts := e.recent()
	if counts {
		return s
	}
	e.Refresh(ctx)
	s, _ = e.recent()
	return s
}

// Fresh returns the incarnation that was read within the last five seconds, and asks nothing: one
// that is not known if there is no such reading, or none that told it. It is never nil.
func (e *Engine) Fresh() *Incarnation {
	s, _ := e.recent()
	return s
}

// Last returns the incarnation that was read last, however long ago, and asks nothing: for uses
// that do no harm if the engine has been restarted meanwhile. It is one that is not known
// if nothing was read since a connection was refused, or if the last answer did not tell
// the incarnation. It is never nil.
func (e *Engine) Last() *Incarnation {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.read.IsZero() {
		return e.unknown()
	}
	return e.known
}

// Incarnation returns the incarnation with that id if it was read last, whether or not that counts any more; nil if another incarnation has
// been read since.
func (e *Engine) Incarnation(id string) *Incarnation {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known.Known() && e.known.id == id {
		return e.known
	}
	return nil
}

// Refresh reads the engine's /metrics, whatever is known. Called more often than every
// five seconds it spares turns the wait in Current. It returns when the reading is over,
// at the limit at the latest, or when ctx ends.
func (e *Engine) Refresh(ctx context.Context) {
	e.fleet.cfg.Client.Check(e.BaseURL) // else the reading itself might find that a connection has ended, and not count
	e.mu.Lock()
	r := e.under
	if r == nil {
		r = &reading{done: make(chan struct{})}
		e.under = r
		// Others may wait for it when the first caller has gone.
		go e.run(context.WithoutCancel(ctx), r)
	}
	e.mu.Unlock()
	wait(ctx, r.done)
}

// recent returns the incarnation of the last reading; counts is false if none counts.
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

// run runs a reading and files what it gave, unless a connection was refused in between.
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
	e.under = nil // or it is already, by the failure of this reading itself
	defer e.show()
	if err == nil {
		e.load = load{use: told.use, others: max(0, told.use.running+told.use.waiting-ours), read: began}
	}
	switch {
	case err == nil && told.incarnation != "":
		e.become(told)
		e.read, e.missed, e.doubted = began, time.Time{}, false
	case err == nil || errors.Is(err, syscall.ECONNREFUSED):
		// No process is there, or another one.
		e.read, e.missed = time.Time{}, began
	default:
		// A late answer makes nothing untrue that was read a moment ago.
		e.missed = began
	}
}

func (e *Engine) readFacts(ctx context.Context) (told facts, err error) {
	defer func() {
		if p := recover(); p != nil { // a defect in reading an answer must not end the process
			told, err = facts{}, fmt.Errorf("read metrics: panic: %v", p)
		}
	}()
	status, text, err := e.fleet.cfg.Client.Fetch(ctx, e.Instance(), "/metrics", "", maxMetrics)
	if err != nil {
		return facts{}, fmt.Errorf("read metrics: %w", err)
	}
	e.heard()
	if status != http.StatusOK {
		return facts{}, fmt.Errorf("read metrics: status %d", status)
	}
	rank := ""
	if e.Ranked {
		rank = strconv.Itoa(e.Rank)
	}
	return readFacts(bytes.NewReader(text), rank)
}

// become makes what a reading told the incarnation that is known. The same id is the same
// start, whatever was forgotten in between. It needs e.mu.
func (e *Engine) become(told facts) {
	e.blank = nil
	old := e.known
	if old == nil || old.id != told.incarnation {
		e.known = newIncarnation(e, told.incarnation)
		e.known.quarantined = told.incarnation == e.quarantinedID
		if old != nil {
			old.end()
			e.legSpeed, e.ejection = legSpeed{}, ejection{} // a restart is how slow engines are mended
			e.show()
		}
	}
	e.known.sized(told.blockSize)
	e.known.keeping.tell(told.caching)
}

// unknown returns what stands for an incarnation that is not known: the same one for as long as
// none is read. It needs e.mu.
func (e *Engine) unknown() *Incarnation {
	if e.blank == nil {
		e.blank = newIncarnation(e, "")
	}
	return e.blank
}
