package fleet

import (
	"sync"
	"sync/atomic"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/fleet/health"
	"carryover/upstream/fleet/prefixindex"
	"carryover/upstream/fleet/unused"
)

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

	Health *health.Health
	models listing

	// mu guards the rest. Lock order: Fleet, Engine, Incarnation.
	mu       sync.Mutex
	attempts attempts
	load     Load

	known *Incarnation // the incarnation that was read last, nil before the first
	readings
	blank *Incarnation // stands for any incarnation whose id is not known; nil until asked for

	quarantinedID string   // id of the incarnation that was last quarantined, "" if none was
	judged        judgment // the last judgment of an incarnation
}

// Refused records that the engine refused a connection. The engine is avoided for [health.DownFor], and its last reading counts
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
func (e *Engine) unread() { e.read, e.missed, e.under, e.load = time.Time{}, time.Time{}, nil, Load{} }

func (e *Engine) refused() {
	e.forget()
	e.Health.Refused()
}

// Reachable reports whether the engine is in the fleet and is not down, so that its blocks can be read.
func (e *Engine) Reachable() bool { return !e.gone.Load() && e.answers() }
