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

// readFor is how long a reading counts, on both clocks. A ticket is used only while its engine is known to be alive.
const readFor = 5 * time.Second

// readings are what /metrics has shown: which incarnation the engine runs. Another id ends the incarnation before. All callers wait for a
// reading that is under way. Engine.mu guards them.
//
// prometheus_client's process collector exports the start time. It runs in vLLM's API server, which ends with its engine. With several API
// servers (--api-server-count, by default the number of data-parallel ranks) vLLM leaves the collector out (v1/metrics/prometheus.py), and
// the incarnation is unknown.
type readings struct {
	known      *Incarnation     // the last one read, nil before the first
	blank      *Incarnation     // stands for any unknown incarnation; nil until needed
	read       time.Time        // when the reading of known began, zero if it no longer counts
	witness    upstream.Witness // shows that the process of that reading still runs
	doubted    bool             // a connection was refused or has ended since
	asleep     bool             // at the last reading with an incarnation
	slept      time.Time        // when the last reading of a sleeping engine began
	missed     time.Time        // when the last reading without an incarnation began
	unanswered bool
	under      chan struct{} // closed when the reading under way ends, nil if there is none
}

// Current returns the engine's incarnation by a reading of the last five seconds, or by a new one. A reading counts
// only while its process is known to run ([upstream.Witness]): it ends when the engine refuses or ends a connection,
// for which Current checks idle ones, and when no connection to the engine is open. So a restarted engine is never
// taken for the one before, even under the same engine id. If the engine does not answer or tell one, Current returns
// an unknown incarnation. That counts for five seconds, too, so that turns do not queue before such an engine. It is
// never nil.
//
// Connections stay open for four seconds after a request, and Run asks every four seconds, so a turn rarely waits. An
// engine that closes each connection is read in each call.
func (e *Engine) Current(ctx context.Context) *Incarnation { return e.currentSince(ctx, e.fleet.Now()) }

// currentSince is Current for a caller that asked at a time: a reading that began later needs no witness.
func (e *Engine) currentSince(ctx context.Context, asked time.Time) *Incarnation {
	s, counts, _ := e.seenSince(asked)
	for n, again := 0, true; !counts && again && n < maxReadings; n++ {
		e.Refresh(ctx)
		s, counts, again = e.seenSince(asked)
	}
	return s
}

// maxReadings bounds the readings of one Current. A reading is repeated if a leg's connection ended meanwhile, or if it was under way already
// and left no witness. An unknown incarnation would cost the turn its ticket, and nobody could release its blocks.
const maxReadings = 3

// Pin returns the incarnations of a new attempt: Current of both engines, read in parallel if necessary. For an engine
// that does not answer it is the last one read. No ticket of that one is used, because it is not [Incarnation.Alive];
// but the attempt may go to another engine, whose answer leaves a ticket.
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

// Fresh returns the incarnation of a reading of the last five seconds, witness or not, else an unknown one, never nil.
// It sends nothing. No ticket is used by it.
func (e *Engine) Fresh() *Incarnation {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, _ := e.recently()
	return s
}

// Last returns the last incarnation read, however old, for uses that a restart does not harm. It is unknown if nothing
// was read since a refused connection, or if the last answer told none; never nil. It sends nothing.
func (e *Engine) Last() *Incarnation {
	e.mu.Lock()
	defer e.mu.Unlock()
	if last := e.last.Load(); last != nil {
		return last
	}
	return e.unknown()
}

// Holder returns the incarnation that holds what an answer of the engine names: Last while a connection from before
// that reading is open, else Current. So a turn without a ticket releases its blocks at the right process, and rarely
// waits.
func (e *Engine) Holder(ctx context.Context) *Incarnation {
	e.mu.Lock()
	read, witness := e.readings.read, e.readings.witness
	e.mu.Unlock()
	if read.IsZero() || witness.Stands() {
		return e.Last()
	}
	return e.Current(ctx)
}

// Incarnation returns the last incarnation read if it has this id, even if its reading no longer counts, else nil.
func (e *Engine) Incarnation(id string) *Incarnation {
	if known := e.lastKnown(); known.Known() && known.id == id {
		return known
	}
	return nil
}

// lastKnown returns the last incarnation read, even if its reading no longer counts; nil before the first.
func (e *Engine) lastKnown() *Incarnation {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.readings.known
}

// SleptSince reports whether the engine has slept since then, by its readings: what it held is gone.
func (e *Engine) SleptSince(at time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return at.Before(e.readings.slept)
}

// seenSince checks idle connections and returns the incarnation of the last reading. counts says whether that suffices
// for a caller that asked at a time; doubted says that a connection ended since, or that the reading began earlier.
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

// recently returns the incarnation of the last reading, and whether that reading counts. It needs e.mu.
func (e *Engine) recently() (s *Incarnation, counts bool) {
	switch r, now := &e.readings, e.fleet.Now(); {
	case !r.read.IsZero() && !r.doubted && upstream.Elapsed(r.read, now) < readFor:
		return r.known, true
	case !r.missed.IsZero() && upstream.Elapsed(r.missed, now) < readFor:
		return e.unknown(), true
	}
	return e.unknown(), false
}

// doubt makes the next caller that relies on the incarnation read it again. Picks keep the old reading, because busy
// API servers close connections, too.
func (e *Engine) doubt() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.readings.doubted, e.readings.under = true, nil
}

func (e *Engine) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.readings.missed, e.readings.under = time.Time{}, nil
	e.setRead(time.Time{})
	e.load.Store(&Load{})
}

// setRead needs e.mu.
func (e *Engine) setRead(began time.Time) {
	if e.readings.read = began; began.IsZero() {
		e.last.Store(nil)
	} else {
		e.last.Store(e.readings.known)
	}
}

// Refresh reads /metrics. Called more often than every five seconds, it spares turns the wait in Current. It returns
// when the reading is over, at ReadLimit at the latest, or when ctx ends.
func (e *Engine) Refresh(ctx context.Context) { facts.Wait(ctx, e.begun(ctx)) }

func (e *Engine) begun(ctx context.Context) (over <-chan struct{}) {
	e.fleet.cfg.Client.Check(e.BaseURL) // finds connections that have ended, which would otherwise discard this reading
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.readings.under == nil {
		e.readings.under = make(chan struct{})
		// It outlives its first caller, because others may wait for it.
		go e.run(context.WithoutCancel(ctx), e.readings.under)
	}
	return e.readings.under
}

// run stores the result unless a connection was refused meanwhile.
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
	r.under = nil // unless a failure of this reading has reset it already
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
		if r.asleep = told.Asleep; r.asleep { // what wakes is unknown, so the next caller reads again
			r.slept, began = began, time.Time{}
		}
		e.setRead(began)
	case err == nil || errors.Is(err, syscall.ECONNREFUSED):
		r.missed = began
		e.setRead(time.Time{})
	default:
		// A late answer does not refute the last reading.
		r.missed = began
	}
}

func (e *Engine) ours() int { return int(e.inFlight.Load() + e.handBacks.Load()) }

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

// become makes a reading's incarnation the engine's. The same id means the same Incarnation, whatever was forgotten
// meanwhile; but a process that has slept becomes another Incarnation under the same id. It needs e.mu.
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

// unknown stays the same until an id is read. It needs e.mu.
func (e *Engine) unknown() *Incarnation {
	if e.readings.blank == nil {
		e.readings.blank = newIncarnation(e, "")
	}
	return e.readings.blank
}
