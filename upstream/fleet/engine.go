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

// Engine is one configured instance and everything known of it. Its name and its place do not change; what else
// is configured of it may ([Engine.Instance]). It is safe for concurrent use.
type Engine struct {
	// What picks read of each engine stands first, in two lines of the processor's cache.
	seen                   view
	inFlight               atomic.Int64  // attempts that have it
	queued                 atomic.Int64  // prompt tokens of these
	nsPerToken, typicalLeg atomic.Uint64 // the bits of a float64 each (speed.go)
	spedUntil              atomic.Int64  // the speed counts until then, on the fleet's clock
	gone                   atomic.Bool   // Set has removed it
	forgotten              atomic.Bool   // and it is not kept for what it holds (departed.go)
	suspected              atomic.Bool   // a start of it has been barred
	answered               atomic.Bool   // something was answered since a connection was refused last
	// at and round are where the pick of that number has it among its candidates. The Fleet's lock guards them.
	at    int32
	round uint64

	identity
	configured atomic.Pointer[upstream.Instance]

	fleet   *Fleet
	cached  cachedBlocks
	cleared atomic.Pointer[time.Time] // when it told last that its KV cache was cleared, nil if it did not
	// handBacks are those that are on their way to a prefill engine.
	handBacks atomic.Int64
	slot      int // among the engines of which it is known what they hold, from 1; 0 for none. The lock of the prefixes guards it.
	habits    habits

	// mu guards the rest. It is taken after the lock of the Fleet and before that of an
	// Incarnation.
	mu          sync.Mutex
	attempts    attempts
	load        load
	listing     listing
	downUntil   time.Time // passive: set by Refused, cleared by a good probe or leg
	pausedUntil time.Time // set by Paused
	failed      int       // active: probes that failed in a row
	downSince   time.Time // when either began
	told        bool      // the log says that it is down, and it has answered nothing since
	drain       bool      // the operator wants it to get nothing new
	circuit     circuit
	legSpeed    legSpeed
	ejection    ejection

	known   *Incarnation // the start that was read last, nil before the first
	blank   *Incarnation // stands for a start that is not known, nil until asked for
	read    time.Time    // when the reading began that told known, zero if it is forgotten
	doubted bool         // a connection was refused or ended since
	missed  time.Time    // when the last reading began that told no start
	under   *reading     // the reading under way, nil if none

	quarantinedID string   // the id of the start that was barred last, "" if none was
	judged        judgment // the last one on a start
	releases      bool     // a leg of our own releases blocks of this decode instance
}

// Refused records that a connection was refused: the engine is avoided for a moment, and
// what was read is forgotten, because whatever answers there next is another start. A
// reading under way counts no more. That holds for all data-parallel ranks of a server, which
// share its address: to try each would use up what a turn may try. Two roles may name one address
// too: then the other's reading counts no more either.
func (e *Engine) Refused() {
	e.refused() // the fleet may not have it any more
	for _, other := range e.fleet.at(e.BaseURL) {
		switch {
		case other == e:
		case other.Role == e.Role:
			other.refused()
		default:
			other.forget()
		}
	}
}

// broke has no reading count that was made of the engines at an address, because one of their connections was refused or ended
// since: another process may answer there by now. It may have the same engine id, so that the start alone tells it from the one before.
func (f *Fleet) broke(url string) {
	for _, e := range f.at(url) {
		e.doubt()
	}
	for _, e := range f.Holders() {
		if e.BaseURL == url && e.gone.Load() {
			e.doubt()
		}
	}
}

// doubt has what was read be read again before it is relied on. Picks go by it meanwhile: an API server that is busy ends connections
// too.
func (e *Engine) doubt() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.doubted, e.under = true, nil
}

// Broke says that a connection of the engine has ended before its answer had.
func (e *Engine) Broke() { e.fleet.broke(e.BaseURL) }

// forget has no reading count that has been made.
func (e *Engine) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unread()
	e.show()
}

// unread needs e.mu.
func (e *Engine) unread() { e.read, e.missed, e.under, e.load = time.Time{}, time.Time{}, nil, load{} }

func (e *Engine) refused() {
	e.mu.Lock()
	now := e.fleet.now()
	if !e.down(now) {
		e.downSince = now
	}
	e.downUntil = now.Add(downFor)
	e.unheard()
	e.unread()
	e.show()
	first := !e.told
	e.told = true
	e.mu.Unlock()
	if first {
		e.wentDown("refuses connections")
	}
}

// wentDown tells of an engine that is down. Connections to it that are idle will not serve
// again, and the name of its host may be that of another address by now.
func (e *Engine) wentDown(why string) {
	e.fleet.cfg.Client.Close()
	e.log().Warn("engine is down", "why", why)
}

// Answered records that a leg was answered, which brings an engine back.
func (e *Engine) Answered() {
	e.heard()
	e.mu.Lock()
	was := e.comeBack(e.circuit.answered(e.fleet.now()))
	e.mu.Unlock()
	e.sayBack(was)
}

// back records that the engine answers connections.
func (e *Engine) back() {
	e.heard()
	e.mu.Lock()
	was := e.comeBack(false)
	e.mu.Unlock()
	e.sayBack(was)
}

// comeBack reports whether the log has to say that the engine is back. Most legs are answered by engines that were up: then
// nothing changes, unless the caller has changed something. It needs e.mu.
func (e *Engine) comeBack(changed bool) (was bool) {
	if changed || e.failed > 0 || !e.downUntil.IsZero() {
		e.downUntil, e.failed = time.Time{}, 0
		e.show()
	}
	was, e.told = e.told, false
	return was
}

func (e *Engine) sayBack(was bool) {
	if was {
		e.log().Info("engine answers again")
		e.fleet.freed()
	}
}

// Reachable reports whether the fleet still has the engine and does not hold it to be
// down, so that its blocks can be read.
func (e *Engine) Reachable() bool { return !e.gone.Load() && e.answers() }

// Unreached reports whether the engine has refused a connection or failed its probes, and has answered nothing since.
func (e *Engine) Unreached() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.told
}

// probed records what an active probe has found. A good one does not close a circuit: an
// engine whose health is fine and whose completions fail is what a circuit is for.
func (e *Engine) probed(healthy bool) {
	if healthy {
		e.back()
		return
	}
	e.mu.Lock()
	if e.failed == 0 && !e.down(e.fleet.now()) {
		e.downSince = e.fleet.now()
	}
	e.failed++
	e.show()
	first := e.failed >= unhealthyAfter && !e.told
	e.told = e.told || first
	e.mu.Unlock()
	if first {
		e.wentDown("health probes fail")
	}
}
