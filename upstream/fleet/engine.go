package fleet

import (
	"sync"
	"sync/atomic"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/fleet/prefixindex"
	"carryover/upstream/fleet/unused"
)

// downFor is how long an engine that refused a connection is avoided, unless a health probe succeeds before. It is
// short because avoiding is only a preference: an engine that is avoided is still tried when no other is left.
const downFor = 2 * time.Second

// unhealthyAfter is how many health probes in a row must fail before the engine counts as down. A busy API server may
// be late once, and an engine that counts as down loses all its tickets.
const unhealthyAfter = 2

// Engine is one configured instance and everything known of it. Its identity (name, role, address, rank) does not
// change; its other settings may ([Engine.Instance]). It is safe for concurrent use.
type Engine struct {
	// Picks read these fields of each engine. They stand first, within two cache lines.
	seen      view
	inFlight  atomic.Int64 // attempts that use the engine
	queued    atomic.Int64 // prompt tokens of these attempts
	speed     facts.SpeedNow
	gone      atomic.Bool       // Set has removed it
	forgotten atomic.Bool       // it is gone, and the fleet does not wait for its pinned blocks either (departed.go)
	suspected atomic.Bool       // one of its incarnations was quarantined
	answered  atomic.Bool       // it has answered something since it last refused a connection
	place     prefixindex.Place // The Fleet's lock guards it.

	identity
	configured atomic.Pointer[upstream.Instance]

	fleet    *Fleet
	Cache    *prefixindex.Cache // what its KV events tell; nothing of a decode engine
	clearing unused.Clearing
	// handBacks counts the hand-back legs that run to this prefill engine.
	handBacks atomic.Int64
	releases  atomic.Bool // a leg of our own is releasing blocks of this decode engine
	// What an engine keeps over its restarts, because it belongs to its machine and to the gateway in front of it.
	Speed     *facts.Speed
	AnswerIDs facts.AnswerIDs

	// mu guards the rest. Lock order: Fleet, Engine, Incarnation.
	mu          sync.Mutex
	attempts    attempts
	load        load
	listing     listing
	downUntil   time.Time // set by Refused; a good probe or leg clears it
	pausedUntil time.Time // set by Paused
	failed      int       // health probes that failed in a row
	downSince   time.Time // when downUntil or failed was first set
	told        bool      // the log has reported it as down, and it has answered nothing since
	drain       bool      // the operator drains it
	circuit     circuit
	legSpeed    legSpeed
	ejection    ejection

	known *Incarnation // the incarnation that was read last, nil before the first
	readings
	blank *Incarnation // stands for any incarnation whose id is not known; nil until asked for

	quarantinedID string   // id of the incarnation that was last quarantined, "" if none was
	judged        judgment // the last judgment of an incarnation
}

// Refused records that the engine refused a connection. The engine is avoided for downFor, and its last reading counts
// no more, because another incarnation may answer next; a reading under way is discarded too.
//
// All data-parallel ranks of a server share its address, so all of them are marked: to try each rank would use up the
// attempts of a turn. An instance of the other role at the same address only loses its reading.
func (e *Engine) Refused() {
	e.refused() // the fleet may have removed it already
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

// broke discards the readings of all engines at an address after one of their connections was refused or ended:
// another process may answer there by now. It may have the same engine id, so only process_start_time_seconds tells
// the two processes apart.
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

// doubt makes the next caller that relies on the incarnation read it again. Picks use the old reading meanwhile,
// because busy API servers close connections too.
func (e *Engine) doubt() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.doubted, e.under = true, nil
}

// Broke records that a connection of the engine ended before its answer was complete.
func (e *Engine) Broke() { e.fleet.broke(e.BaseURL) }

// forget discards the last reading and any reading under way.
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

// wentDown logs that the engine is down and closes the client's idle connections: they will not serve again, and the
// host name may resolve to another address by now.
func (e *Engine) wentDown(why string) {
	e.fleet.cfg.Client.Close()
	e.log().Warn("engine is down", "why", why)
}

// Answered records that a leg was answered: the engine is not down any more.
func (e *Engine) Answered() {
	e.heard()
	e.mu.Lock()
	was := e.comeBack(e.circuit.answered(e.fleet.now()))
	e.mu.Unlock()
	e.sayBack(was)
}

// back records that the engine answers connections, without a word about its circuit.
func (e *Engine) back() {
	e.heard()
	e.mu.Lock()
	was := e.comeBack(false)
	e.mu.Unlock()
	e.sayBack(was)
}

// comeBack clears the marks of a down engine, and reports whether the log has to say that it is back. Most answers
// come from engines that were up and change nothing; changed says that the caller has changed something that picks
// see. It needs e.mu.
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

// Reachable reports whether the engine is in the fleet and is not down, so that its blocks can be read.
func (e *Engine) Reachable() bool { return !e.gone.Load() && e.answers() }

// Unreached reports whether the log has reported the engine as down and it has answered nothing since.
func (e *Engine) Unreached() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.told
}

// probed records the result of a health probe. A good one does not close the circuit: the circuit is for engines whose
// health is fine while their completions fail.
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
