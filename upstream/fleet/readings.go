package fleet

import (
	"context"
	"sync"
	"time"

	"carryover/upstream"
)

// readFor is how long a reading counts, on both clocks. A ticket is used only while its engine is known to be alive;
// an older reading is repeated first.
const readFor = 5 * time.Second

// readings are an engine's readings of /metrics and what they have shown of it: which incarnation it runs, and its load.
// A reading that brings another incarnation ends the one before. It is safe for concurrent use.
type readings struct {
	engine *Engine

	mu         sync.Mutex       // guards the rest. Lock order: Fleet, readings, Health, Incarnation
	known      *Incarnation     // the incarnation that was read last, nil before the first
	blank      *Incarnation     // stands for any incarnation whose id is not known; nil until asked for
	read       time.Time        // when the reading that set the known incarnation began, zero if it counts no more
	witness    upstream.Witness // shows that the process which answered that reading still runs
	doubted    bool             // a connection was refused or has ended since then
	asleep     bool             // the engine slept at the last reading that found an incarnation
	slept      time.Time        // when the last reading that found the engine asleep began
	missed     time.Time        // when the last reading that found no incarnation began
	unanswered bool             // the last reading had no answer at all
	under      *reading         // the reading under way, nil if none
	load       Load
	// quarantinedID is the id of the incarnation that was last quarantined, "" if none was.
	quarantinedID string
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
func (r *readings) Current(ctx context.Context) *Incarnation {
	return r.currentSince(ctx, r.engine.fleet.now())
}

// currentSince is Current for a caller that has asked at a time: a reading that began then or later needs no witness.
func (r *readings) currentSince(ctx context.Context, asked time.Time) *Incarnation {
	s, counts, _ := r.seenSince(asked)
	for n, again := 0, true; !counts && again && n < maxReadings; n++ {
		r.Refresh(ctx)
		s, counts, again = r.seenSince(asked)
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
	d, counts, _ := decode.seenSince(asked)
	if !counts {
		decode.begun(ctx)
	}
	if p, also, _ := prefill.seenSince(asked); counts && also && p.Known() && d.Known() {
		return p, d
	}
	return prefill.pinned(ctx, asked), decode.pinned(ctx, asked)
}

func (r *readings) pinned(ctx context.Context, asked time.Time) *Incarnation {
	if s := r.currentSince(ctx, asked); s.Known() {
		return s
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unanswered && r.known != nil {
		return r.known
	}
	return r.unknown()
}

// Fresh returns the engine's incarnation by a reading of the last five seconds, whether or not a connection was open
// since, and sends nothing. No ticket is used by it. Without such a reading it returns an incarnation that is not known.
// It is never nil.
func (r *readings) Fresh() *Incarnation {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, _ := r.recently()
	return s
}

// Last returns the incarnation that was read last, however long ago, and sends nothing. It is for uses that do no harm
// if the engine has restarted since. It returns an incarnation that is not known if nothing was read since a
// connection was refused, or if the last answer told none. It is never nil.
func (r *readings) Last() *Incarnation {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.read.IsZero() {
		return r.unknown()
	}
	return r.known
}

// Holder returns the incarnation that holds what an answer of the engine will name: Last while a connection from before
// that reading is open, else Current. So the blocks of a turn that leaves no ticket are released at the process that
// holds them, and such a turn rarely waits.
func (r *readings) Holder(ctx context.Context) *Incarnation {
	r.mu.Lock()
	read, witness := r.read, r.witness
	r.mu.Unlock()
	if read.IsZero() || witness.Stands() {
		return r.Last()
	}
	return r.Current(ctx)
}

// Incarnation returns the incarnation with that id if it was read last, even if that reading counts no more; nil if
// the engine has another one.
func (r *readings) Incarnation(id string) *Incarnation {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known.Known() && r.known.id == id {
		return r.known
	}
	return nil
}

// lastKnown returns the incarnation that was read last, even if that reading counts no more; nil before the first.
func (r *readings) lastKnown() *Incarnation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known
}

// SleptSince reports whether a reading after this moment has found the engine asleep: what it held then is gone.
func (r *readings) SleptSince(at time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return at.Before(r.slept)
}

// Refresh reads the engine's /metrics, whatever is known. Called more often than every five seconds, it spares turns
// the wait in Current. It returns when the reading is over, at ReadLimit at the latest, or when ctx ends.
func (r *readings) Refresh(ctx context.Context) { wait(ctx, r.begun(ctx).done) }

// seenSince checks the idle connections and returns the incarnation that the engine still runs by its last reading.
// counts says whether that reading counts for a caller that has asked at a time. doubted says that a connection of the
// engine has ended since, or that the reading began before that time.
func (r *readings) seenSince(asked time.Time) (s *Incarnation, counts, doubted bool) {
	r.engine.fleet.cfg.Client.Check(r.engine.BaseURL)
	r.mu.Lock()
	s, counts = r.recently()
	read, witness, doubted := r.read, r.witness, r.doubted || !r.read.IsZero() && r.read.Before(asked)
	r.mu.Unlock()
	if !s.Known() || !read.Before(asked) || witness.Stands() {
		return s, counts, doubted
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unknown(), !r.missed.IsZero() && upstream.Elapsed(r.missed, asked) < readFor, doubted
}

// recently returns the incarnation of the last reading; counts says whether that reading still counts. It needs r.mu.
func (r *readings) recently() (s *Incarnation, counts bool) {
	switch now := r.engine.fleet.now(); {
	case !r.read.IsZero() && !r.doubted && upstream.Elapsed(r.read, now) < readFor:
		return r.known, true
	case !r.missed.IsZero() && upstream.Elapsed(r.missed, now) < readFor:
		return r.unknown(), true
	}
	return r.unknown(), false
}

// doubt makes the next caller that relies on the incarnation read it again. Picks use the old reading meanwhile,
// because busy API servers close connections too.
func (r *readings) doubt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.doubted, r.under = true, nil
}

// forget discards the last reading and any reading under way.
func (r *readings) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read, r.missed, r.under, r.load = time.Time{}, time.Time{}, nil, Load{}
	r.show()
}

// latest returns the load at the last reading.
func (r *readings) latest() Load {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.load
}
