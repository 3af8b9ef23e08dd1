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

// reading is one request for /metrics. All callers that ask meanwhile wait for it.
//
// prometheus_client's process collector exports the start time. It runs in vLLM's API server, which ends when its
// engine does. With several API servers in one instance (--api-server-count, by default as many as data-parallel
// ranks) vLLM leaves this collector out (v1/metrics/prometheus.py), and the incarnation is not known.
type reading struct{ done chan struct{} }

// begun begins a reading, or returns the one under way.
func (r *readings) begun(ctx context.Context) *reading {
	r.engine.fleet.cfg.Client.Check(r.engine.BaseURL) // finds connections that have ended, which would else discard this reading
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.under == nil {
		r.under = &reading{done: make(chan struct{})}
		// It goes on without the first caller, because others may wait for it.
		go r.run(context.WithoutCancel(ctx), r.under)
	}
	return r.under
}

// wait returns when a question is over or ctx ends.
func wait(ctx context.Context, over <-chan struct{}) {
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// run runs a reading and stores its result, unless a connection was refused meanwhile.
func (r *readings) run(ctx context.Context, this *reading) {
	began, ours := r.engine.fleet.now(), r.engine.attempts.all()
	ctx, cancel := context.WithTimeout(ctx, r.engine.fleet.cfg.ReadLimit)
	defer cancel()
	told, witness, err := r.readFacts(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	defer close(this.done)
	if r.under != this && (r.under != nil || err == nil) {
		return
	}
	r.unanswered = errors.Is(err, errNoAnswer)
	r.under = nil // unless a failure of this very reading has reset it already
	defer r.show()
	if err == nil {
		if !r.load.Read.IsZero() && told.Use.Generated > r.load.Generated {
			r.engine.Health.Worked(r.load.Read)
		}
		r.load = Load{Use: told.Use, Others: max(0, told.Use.Running+told.Use.Waiting-ours), Read: began}
	}
	switch {
	case err == nil && told.Incarnation != "":
		r.become(told)
		r.read, r.witness, r.missed, r.doubted = began, witness, time.Time{}, false
		if r.asleep = told.Asleep; r.asleep { // nothing is known of what wakes, and the next caller that relies on it reads anew
			r.read, r.slept = time.Time{}, began
		}
	case err == nil || errors.Is(err, syscall.ECONNREFUSED):
		// Nothing answers there, or another process.
		r.read, r.missed = time.Time{}, began
	default:
		// A late answer does not refute what was read a moment ago.
		r.missed = began
	}
}

// errNoAnswer says that an engine has not begun to answer.
var errNoAnswer = errors.New("no answer")

func (r *readings) readFacts(ctx context.Context) (told facts.Metrics, witness upstream.Witness, err error) {
	defer func() {
		if p := recover(); p != nil { // a defect in reading an answer must not end the process
			told, err = facts.Metrics{}, fmt.Errorf("read metrics: panic: %v", p)
		}
	}()
	status, text, witness, err := r.engine.fleet.cfg.Client.FetchWitnessed(ctx, r.engine.Instance(), "/metrics", "", facts.MaxMetrics)
	switch {
	case err != nil && status == 0:
		return facts.Metrics{}, witness, fmt.Errorf("read metrics: %w: %w", errNoAnswer, err)
	case err != nil:
		return facts.Metrics{}, witness, fmt.Errorf("read metrics: %w", err)
	}
	r.engine.Health.Heard()
	if status != http.StatusOK {
		return facts.Metrics{}, witness, fmt.Errorf("read metrics: status %d", status)
	}
	rank := ""
	if r.engine.Ranked {
		rank = strconv.Itoa(r.engine.Rank)
	}
	told, err = facts.ReadMetrics(bytes.NewReader(text), rank)
	return told, witness, err
}

// become makes a reading's incarnation the engine's. The same id is the same Incarnation, whatever was forgotten in
// between, unless the engine sleeps: a process that wakes is another Incarnation under the same id. It needs r.mu.
func (r *readings) become(told facts.Metrics) {
	if r.blank != nil {
		r.blank.leave()
		r.blank = nil
	}
	old, why := r.known, "was restarted"
	if told.Asleep {
		why = "sleeps"
	}
	if old == nil || old.id != told.Incarnation || told.Asleep && !r.asleep {
		r.known = newIncarnation(r.engine, told.Incarnation)
		r.known.quarantined = told.Incarnation == r.quarantinedID
		if old != nil {
			old.end()
			r.engine.Health.Restarted()
			r.engine.tell(why + ": what it held for tickets, and in its prefix cache, is gone")
		}
	}
	r.known.blockSize.Store(int64(told.BlockSize))
	r.known.PrefixCache.Told(told.Caching)
}

// unknown returns the Incarnation that stands for any whose id is not known: the same one until an id is read. It
// needs r.mu.
func (r *readings) unknown() *Incarnation {
	if r.blank == nil {
		r.blank = newIncarnation(r.engine, "")
	}
	return r.blank
}
