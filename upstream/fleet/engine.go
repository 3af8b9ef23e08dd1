package fleet

import (
	"sync"
	"sync/atomic"
	"time"

	"carryover/upstream"
)

// downFor is how long an instance that refused a connection is avoided unless a
// health probe succeeds before. It is short because avoiding is only a
// preference: with no other instance left it is tried all the same.
const downFor = 2 * time.Second

// unhealthyAfter is how many probes in a row must fail: a busy API server may be
// late once, and calling an instance down costs all its tickets.
const unhealthyAfter = 2

// Engine is one configured instance and everything known of it. Its configuration does
// not change: an instance that is configured differently is another Engine. It is safe
// for concurrent use.
type Engine struct {
	upstream.Instance

	fleet  *Fleet
	habits habits
	gone   atomic.Bool // Set has removed it

	// mu guards the rest. It is taken after the lock of the Fleet and before that of a
	// Start.
	mu        sync.Mutex
	inFlight  int
	downUntil time.Time // passive: set by Refused, cleared by a good probe or leg
	failed    int       // active: probes that failed in a row

	known  *Start    // the start that was read last, nil before the first
	blank  *Start    // stands for a start that is not known, nil until asked for
	read   time.Time // when the reading began that told known, zero if it is forgotten
	missed time.Time // when the last reading began that told no start
	under  *reading  // the reading under way, nil if none

	barred   string   // the id of the start that was barred last, "" if none was
	judged   judgment // the last one on a start
	releases bool     // a leg of our own releases blocks of this decode instance
}

// Refused records that a connection was refused: the engine is avoided for a moment, and
// what was read is forgotten, because whatever answers there next is another start. A
// reading under way counts no more. Two roles may name one address: then that holds for both.
func (e *Engine) Refused() {
	for _, other := range e.fleet.at(e.BaseURL) {
		other.forget()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.downUntil = e.fleet.now().Add(downFor)
	e.read, e.missed, e.under = time.Time{}, time.Time{}, nil
}

// forget has no reading count that has been made.
func (e *Engine) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.read, e.missed, e.under = time.Time{}, time.Time{}, nil
}

// Answered records that a leg was answered, which brings an engine back.
func (e *Engine) Answered() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.downUntil, e.failed = time.Time{}, 0
}

// Reachable reports whether the fleet still has the engine and does not hold it to be
// down.
func (e *Engine) Reachable() bool { return !e.gone.Load() && e.up() }

func (e *Engine) up() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failed < unhealthyAfter && !e.fleet.now().Before(e.downUntil)
}

// probed records what an active probe has found.
func (e *Engine) probed(healthy bool) {
	if healthy {
		e.Answered()
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failed++
}

// count changes how many attempts have the engine, and returns how many that are.
func (e *Engine) count(change int) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inFlight += change
	return e.inFlight
}
