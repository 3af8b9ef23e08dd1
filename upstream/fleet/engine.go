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

	// What picks read of each engine stands together, in two lines of the processor's cache.
	seen                   view
	inFlight               atomic.Int64  // attempts that have it
	queued                 atomic.Int64  // prompt tokens of these
	nsPerToken, typicalLeg atomic.Uint64 // the bits of a float64 each (speed.go)
	gone                   atomic.Bool   // Set has removed it
	suspected              atomic.Bool   // a start of it has been barred
	// at and round are where the pick of that number has it among its candidates. The Fleet's lock guards them.
	at    int
	round uint64

	fleet  *Fleet
	habits habits

	// mu guards the rest. It is taken after the lock of the Fleet and before that of a
	// Start.
	mu        sync.Mutex
	attempts  attempts
	load      load
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
// reading under way counts no more. That holds for all data-parallel ranks of a server, which
// share its address. Two roles may name one address too: then the other's reading counts no more either.
func (e *Engine) Refused() {
	until := e.fleet.now().Add(downFor)
	e.forget(until) // the fleet may not have it any more
	for _, other := range e.fleet.at(e.BaseURL) {
		if other.Role == e.Role {
			other.forget(until)
		} else {
			other.forget(time.Time{})
		}
	}
}

// forget has no reading count that has been made, and the engine avoided for a while, if that is not zero.
func (e *Engine) forget(until time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !until.IsZero() {
		e.downUntil = until
	}
	e.read, e.missed, e.under, e.load = time.Time{}, time.Time{}, nil, load{}
	e.show()
}

// Answered records that a leg was answered, which brings an engine back.
func (e *Engine) Answered() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failed > 0 || !e.downUntil.IsZero() { // most legs are answered by engines that were up
		e.downUntil, e.failed = time.Time{}, 0
		e.show()
	}
}

// Reachable reports whether the fleet still has the engine and does not hold it to be
// down.
func (e *Engine) Reachable() bool { return !e.gone.Load() && e.up() }

func (e *Engine) up() bool { return e.seen.up(e.fleet.clock()) }

// state names the reason why the engine is picked only if no other is left, "up" for none.
func (e *Engine) state() string {
	if e.up() {
		return "up"
	}
	return "down"
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
	e.show()
}
