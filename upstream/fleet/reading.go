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

// readings are what an engine's readings have brought. The engine's lock guards it.
type readings struct {
	read       time.Time        // when the reading that set the known incarnation began, zero if it counts no more
	witness    upstream.Witness // shows that the process which answered that reading still runs
	doubted    bool             // a connection was refused or has ended since then
	missed     time.Time        // when the last reading that found no incarnation began
	unanswered bool             // the last reading had no answer at all
	under      *reading         // the reading under way, nil if none
}

// Current returns the engine's incarnation by a reading of the last five seconds, or by a new one. A reading counts
// only while its process is known to run ([upstream.Witness]): not from before the engine last refused or ended a
// connection, for which Current checks idle connections, and not from before a moment at which no connection to the
// engine was open. So a restarted engine is not mistaken for the one before, even under the same engine id. Current
// returns an incarnation that is not known if the engine does not answer or does not tell one. That too counts for five
// seconds, so that turns do not queue before an engine that does not answer. It is never nil.
//
// Connections are kept for four seconds behind a request, and Run asks every four seconds, so a turn rarely waits. An
// engine that closes the connection of each answer is read in each call.
func (e *Engine) Current(ctx context.Context) *Incarnation {
	return currentSince(ctx, e, e.fleet.now())
}

// currentSince is Current for a caller that has asked at a time: a reading that began then or later needs no witness.
func currentSince(ctx context.Context, e *Engine, asked time.Time) *Incarnation {
	e.fleet.cfg.Client.Check(e.BaseURL)
	s, counts, _ := seenSince(e, asked)
	for n, again := 0, true; !counts && again && n < maxReadings; n++ {
		e.Refresh(ctx)
		s, counts, again = seenSince(e, asked)
	}
	return s
}

// maxReadings is how many readings Current makes at most. Another follows where the connection of a leg ended during one, which counts for
// nothing then: the answer of a turn whose incarnation is not known leaves no ticket, and nobody can release its blocks. Another follows also
// where a reading that was under way already has left no witness.
const maxReadings = 3

// Pin returns the incarnations with which an attempt begins: Current of both, which are read at the same time if they
// have to be. Of an engine that does not answer it is the incarnation that was read last. No ticket of that one is used,
// because it is not [Incarnation.Alive]; but the attempt may go to another engine, whose answer leaves a ticket.
func Pin(ctx context.Context, prefill, decode *Engine) (p, d *Incarnation) {
	asked := decode.fleet.now()
	if _, counts, _ := seenSince(decode, asked); !counts {
		beginReading(ctx, decode)
	}
	return pinned(ctx, prefill, asked), pinned(ctx, decode, asked)
}

func pinned(ctx context.Context, e *Engine, asked time.Time) *Incarnation {
	if s := currentSince(ctx, e, asked); s.Known() {
		return s
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.unanswered && e.known != nil {
		return e.known
	}
	return e.unknown()
}

// Fresh returns the engine's incarnation by a reading of the last five seconds, whether or not a connection was open
// since, and sends nothing. No ticket is used by it. Without such a reading it returns an incarnation that is not known.
// It is never nil.
func (e *Engine) Fresh() *Incarnation {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, _ := recently(e)
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

// Holder returns the incarnation that holds what an answer of the engine will name: Last while a connection from before
// that reading is open, else Current. So the blocks of a turn that leaves no ticket are released at the process that
// holds them, and such a turn rarely waits.
func (e *Engine) Holder(ctx context.Context) *Incarnation {
	e.mu.Lock()
	read, witness := e.read, e.witness
	e.mu.Unlock()
	if read.IsZero() || witness.Stands() {
		return e.Last()
	}
	return e.Current(ctx)
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
func (e *Engine) Refresh(ctx context.Context) { wait(ctx, beginReading(ctx, e).done) }

// beginReading begins a reading, or returns the one under way.
func beginReading(ctx context.Context, e *Engine) *reading {
	e.fleet.cfg.Client.Check(e.BaseURL) // finds connections that have ended, which would else discard this reading
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.under
	if r == nil {
		r = &reading{done: make(chan struct{})}
		e.under = r
		// It goes on without the first caller, because others may wait for it.
		go e.run(context.WithoutCancel(ctx), r)
	}
	return r
}

// seenSince returns the incarnation that the engine still runs by its last reading. counts says whether that reading
// counts for a caller that has asked at a time. doubted says that a connection of the engine has ended since, or that
// the reading began before that time.
func seenSince(e *Engine, asked time.Time) (s *Incarnation, counts, doubted bool) {
	e.mu.Lock()
	s, counts = recently(e)
	read, witness, doubted := e.read, e.witness, e.doubted || !e.read.IsZero() && e.read.Before(asked)
	e.mu.Unlock()
	if !s.Known() || !read.Before(asked) || witness.Stands() {
		return s, counts, doubted
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.unknown(), !e.missed.IsZero() && upstream.Elapsed(e.missed, asked) < readFor, doubted
}

// wait returns when a question is over or ctx ends.
func wait(ctx context.Context, over <-chan struct{}) {
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// recently returns the incarnation of the last reading; counts says whether that reading still counts. It needs e.mu.
func recently(e *Engine) (s *Incarnation, counts bool) {
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
	told, witness, err := e.readFacts(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	defer close(r.done)
	if e.under != r && (e.under != nil || err == nil) {
		return
	}
	e.unanswered = errors.Is(err, errNoAnswer)
	e.under = nil // unless a failure of this very reading has reset it already
	defer e.show()
	if err == nil {
		e.load = Load{Use: told.Use, Others: max(0, told.Use.Running+told.Use.Waiting-ours), Read: began}
	}
	switch {
	case err == nil && told.Incarnation != "":
		e.become(told)
		e.read, e.witness, e.missed, e.doubted = began, witness, time.Time{}, false
	case err == nil || errors.Is(err, syscall.ECONNREFUSED):
		// Nothing answers there, or another process.
		e.read, e.missed = time.Time{}, began
	default:
		// A late answer does not refute what was read a moment ago.
		e.missed = began
	}
}

// errNoAnswer says that an engine has not begun to answer.
var errNoAnswer = errors.New("no answer")

func (e *Engine) readFacts(ctx context.Context) (told facts.Metrics, witness upstream.Witness, err error) {
	defer func() {
		if p := recover(); p != nil { // a defect in reading an answer must not end the process
			told, err = facts.Metrics{}, fmt.Errorf("read metrics: panic: %v", p)
		}
	}()
	status, text, witness, err := e.fleet.cfg.Client.FetchWitnessed(ctx, e.Instance(), "/metrics", "", facts.MaxMetrics)
	switch {
	case err != nil && status == 0:
		return facts.Metrics{}, witness, fmt.Errorf("read metrics: %w: %w", errNoAnswer, err)
	case err != nil:
		return facts.Metrics{}, witness, fmt.Errorf("read metrics: %w", err)
	}
	e.Health.Heard()
	if status != http.StatusOK {
		return facts.Metrics{}, witness, fmt.Errorf("read metrics: status %d", status)
	}
	rank := ""
	if e.Ranked {
		rank = strconv.Itoa(e.Rank)
	}
	told, err = facts.ReadMetrics(bytes.NewReader(text), rank)
	return told, witness, err
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
			e.Health.Restarted()
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
