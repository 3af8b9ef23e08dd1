package fleet

import (
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

// readings are what requests for /metrics have shown of an engine: which incarnation it runs. A reading that brings another incarnation ends
// the one before. All callers that ask while a reading is under way wait for it. The engine's lock guards them.
//
// prometheus_client's process collector exports the start time. It runs in vLLM's API server, which ends when its
// engine does. With several API servers in one instance (--api-server-count, by default as many as data-parallel
// ranks) vLLM leaves this collector out (v1/metrics/prometheus.py), and the incarnation is not known.
type readings struct {
	known      *Incarnation     // the incarnation that was read last, nil before the first
	blank      *Incarnation     // stands for any incarnation whose id is not known; nil until asked for
	read       time.Time        // when the reading that set the known incarnation began, zero if it counts no more
	witness    upstream.Witness // shows that the process which answered that reading still runs
	doubted    bool             // a connection was refused or has ended since then
	asleep     bool             // the engine slept at the last reading that found an incarnation
	slept      time.Time        // when the last reading that found the engine asleep began
	missed     time.Time        // when the last reading that found no incarnation began
	unanswered bool             // the last reading had no answer at all
	under      chan struct{}    // closed when the reading under way is over, nil if there is none
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
func (e *Engine) Current(ctx context.Context) *Incarnation { return e.currentSince(ctx, e.fleet.Now()) }

// currentSince is Current for a caller that has asked at a time: a reading that began then or later needs no witness.
func (e *Engine) currentSince(ctx context.Context, asked time.Time) *Incarnation {
	s, counts, _ := e.seenSince(asked)
	for n, again := 0, true; !counts && again && n < maxReadings; n++ {
		e.Refresh(ctx)
		s, counts, again = e.seenSince(asked)
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
	asked := decode.fleet.Now()
	d, counts, _ := decode.seenSince(asked)
	if !counts {
		decode.begun(ctx)
	}
	if p, also, _ := prefill.seenSince(asked); counts && also && p.Known() && d.Known() {
		return p, d
	}
	return prefill.pinned(ctx, asked), decode.pinned(ctx, asked)
}

func (e *Engine) pinned(ctx context.Context, asked time.Time) *Incarnation {
	if s := e.currentSince(ctx, asked); s.Known() {
		return s
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if r := &e.readings; r.unanswered && r.known != nil {
		return r.known
	}
	return e.unknown()
}

// Fresh returns the engine's incarnation by a reading of the last five seconds, whether or not a connection was open
// since, and sends nothing. No ticket is used by it. Without such a reading it returns an incarnation that is not known.
// It is never nil.
func (e *Engine) Fresh() *Incarnation {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, _ := e.recently()
	return s
}

// Last returns the incarnation that was read last, however long ago, and sends nothing. It is for uses that do no harm
// if the engine has restarted since. It returns an incarnation that is not known if nothing was read since a
// connection was refused, or if the last answer told none. It is never nil.
func (e *Engine) Last() *Incarnation {
	e.mu.Lock()
	defer e.mu.Unlock()
	if last := e.last.Load(); last != nil {
		return last
	}
	return e.unknown()
}

// Holder returns the incarnation that holds what an answer of the engine will name: Last while a connection from before
// that reading is open, else Current. So the blocks of a turn that leaves no ticket are released at the process that
// holds them, and such a turn rarely waits.
func (e *Engine) Holder(ctx context.Context) *Incarnation {
	e.mu.Lock()
	read, witness := e.readings.read, e.readings.witness
	e.mu.Unlock()
	if read.IsZero() || witness.Stands() {
		return e.Last()
	}
	return e.Current(ctx)
}

// Incarnation returns the incarnation with that id if it was read last, even if that reading counts no more; nil if
// the engine has another one.
func (e *Engine) Incarnation(id string) *Incarnation {
	if known := e.lastKnown(); known.Known() && known.id == id {
		return known
	}
	return nil
}

// lastKnown returns the incarnation that was read last, even if that reading counts no more; nil before the first.
func (e *Engine) lastKnown() *Incarnation {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.readings.known
}

// SleptSince reports whether a reading after this moment has found the engine asleep: what it held then is gone.
func (e *Engine) SleptSince(at time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return at.Before(e.readings.slept)
}

// seenSince checks the idle connections and returns the incarnation that the engine still runs by its last reading.
// counts says whether that reading counts for a caller that has asked at a time. doubted says that a connection of the
// engine has ended since, or that the reading began before that time.
func (e *Engine) seenSince(asked time.Time) (s *Incarnation, counts, doubted bool) {
	e.fleet.cfg.Client.Check(e.BaseURL)
	r := &e.readings
	e.mu.Lock()
	s, counts = e.recently()
	read, witness, doubted := r.read, r.witness, r.doubted || !r.read.IsZero() && r.read.Before(asked)
	e.mu.Unlock()
	if !s.Known() || !read.Before(asked) || witness.Stands() {
		return s, counts, doubted
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.unknown(), !r.missed.IsZero() && upstream.Elapsed(r.missed, asked) < readFor, doubted
}

// recently returns the incarnation of the last reading; counts says whether that reading still counts. It needs e.mu.
func (e *Engine) recently() (s *Incarnation, counts bool) {
	switch r, now := &e.readings, e.fleet.Now(); {
	case !r.read.IsZero() && !r.doubted && upstream.Elapsed(r.read, now) < readFor:
		return r.known, true
	case !r.missed.IsZero() && upstream.Elapsed(r.missed, now) < readFor:
		return e.unknown(), true
	}
	return e.unknown(), false
}

// doubt makes the next caller that relies on the incarnation read it again. Picks use the old reading meanwhile,
// because busy API servers close connections too.
func (e *Engine) doubt() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.readings.doubted, e.readings.under = true, nil
}

// forget discards the last reading and any reading under way.
func (e *Engine) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.readings.missed, e.readings.under = time.Time{}, nil
	e.setRead(time.Time{})
	e.load.Store(&Load{})
}

// setRead sets when the reading that set the known incarnation began, zero if it counts no more. It needs e.mu.
func (e *Engine) setRead(began time.Time) {
	if e.readings.read = began; began.IsZero() {
		e.last.Store(nil)
	} else {
		e.last.Store(e.readings.known)
	}
}

// Refresh reads the engine's /metrics, whatever is known. Called more often than every five seconds, it spares turns
// the wait in Current. It returns when the reading is over, at ReadLimit at the latest, or when ctx ends.
func (e *Engine) Refresh(ctx context.Context) { facts.Wait(ctx, e.begun(ctx)) }

// begun begins a reading, or returns the one under way.
func (e *Engine) begun(ctx context.Context) (over <-chan struct{}) {
	e.fleet.cfg.Client.Check(e.BaseURL) // finds connections that have ended, which would else discard this reading
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.readings.under == nil {
		e.readings.under = make(chan struct{})
		// It goes on without the first caller, because others may wait for it.
		go e.run(context.WithoutCancel(ctx), e.readings.under)
	}
	return e.readings.under
}

// run runs a reading and stores its result, unless a connection was refused meanwhile.
func (e *Engine) run(ctx context.Context, this chan struct{}) {
	began, ours := e.fleet.Now(), e.ours()
	ctx, cancel := context.WithTimeout(ctx, e.fleet.cfg.ReadLimit)
	defer cancel()
	told, witness, err := e.readFacts(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	defer close(this)
	r := &e.readings
	if r.under != this && (r.under != nil || err == nil) {
		return
	}
	r.unanswered = errors.Is(err, errNoAnswer)
	r.under = nil // unless a failure of this very reading has reset it already
	if err == nil {
		if old := e.load.Load(); !old.Read.IsZero() && told.Use.Generated > old.Generated {
			e.Health.Worked(old.Read)
		}
		e.load.Store(&Load{Use: told.Use, Others: max(0, told.Use.Running+told.Use.Waiting-ours), Read: began, until: began.Sub(e.fleet.born) + loadFor})
	}
	switch {
	case err == nil && told.Incarnation != "":
		e.become(told)
		r.witness, r.missed, r.doubted = witness, time.Time{}, false
		if r.asleep = told.Asleep; r.asleep { // nothing is known of what wakes, and the next caller that relies on it reads anew
			r.slept, began = began, time.Time{}
		}
		e.setRead(began)
	case err == nil || errors.Is(err, syscall.ECONNREFUSED):
		// Nothing answers there, or another process.
		r.missed = began
		e.setRead(time.Time{})
	default:
		// A late answer does not refute what was read a moment ago.
		r.missed = began
	}
}

// ours returns how many requests of ours the engine has.
func (e *Engine) ours() int { return int(e.inFlight.Load() + e.handBacks.Load()) }

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
		return told, witness, fmt.Errorf("read metrics: %w: %w", errNoAnswer, err)
	case err != nil:
		return told, witness, fmt.Errorf("read metrics: %w", err)
	}
	e.Health.Heard()
	if status != http.StatusOK {
		return told, witness, fmt.Errorf("read metrics: status %d", status)
	}
	rank := ""
	if e.Ranked {
		rank = strconv.Itoa(e.Rank)
	}
	told, err = facts.ReadMetrics(text, rank)
	return told, witness, err
}

// become makes a reading's incarnation the engine's. The same id is the same Incarnation, whatever was forgotten in
// between, unless the engine sleeps: a process that wakes is another Incarnation under the same id. It needs e.mu.
func (e *Engine) become(told facts.Metrics) {
	r := &e.readings
	if r.blank != nil {
		r.blank.leave()
		r.blank = nil
	}
	if old := r.known; old == nil || old.id != told.Incarnation || told.Asleep && !r.asleep {
		r.known = newIncarnation(e, told.Incarnation)
		if old != nil {
			why := "was restarted"
			if told.Asleep {
				why = "sleeps"
			}
			old.over.Store(true)
			old.leave()
			e.Health.Restarted()
			e.tell(why + ": what it held for tickets, and in its prefix cache, is gone")
		}
	}
	r.known.blockSize.Store(int64(told.BlockSize))
	r.known.PrefixCache.Told(told.Caching)
}

// unknown returns the Incarnation that stands for any whose id is not known: the same one until an id is read. It
// needs e.mu.
func (e *Engine) unknown() *Incarnation {
	if e.readings.blank == nil {
		e.readings.blank = newIncarnation(e, "")
	}
	return e.readings.blank
}
