package fleet

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/fleet/health"
	"carryover/upstream/fleet/prefixindex"
)

// Engine is one configured instance and everything known of it. Its identity (name, role, address, rank) does not
// change; its other settings may ([Engine.Instance]). It is safe for concurrent use.
type Engine struct {
	seen     view
	member   membership
	attempts attempts

	configured
	facts.Machine
	readings
	Health *health.Health
	models listing

	fleet    *Fleet
	Cache    *prefixindex.Cache // what its KV events tell
	releases atomic.Bool        // a leg of our own is releasing blocks of this decode engine
}

// membership is whether the fleet still has the engine.
type membership struct {
	gone      atomic.Bool // Set has removed it
	forgotten atomic.Bool // it is gone, and the fleet does not wait for its pinned blocks either (holders.go)
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

// broke discards the readings of all engines at an address after one of their connections was refused or ended: another process may answer there
// by now. It may have the same engine id, so only process_start_time_seconds tells the two processes apart.
func (f *Fleet) broke(url string) {
	members := f.at(url)
	for _, e := range members {
		e.doubt()
	}
	for _, e := range f.Holders.All() { // those that have left, come back or leave at this moment are listed here alone
		if e.BaseURL == url && !slices.Contains(members, e) {
			e.doubt()
		}
	}
}

// Doubted records that a leg failed as the request may have caused. Only if the engine fails a request of our own, too, its circuit opens. An
// engine that refuses our key has accepted the client's.
func (e *Engine) Doubted(leg *upstream.LegError) {
	if e.Health.Doubted() {
		go func() { e.Health.Asked(e.Last().Capability.Try(context.Background(), leg)) }() // within 5 s
	}
}

// Broke records that a connection of the engine ended before its answer was complete.
func (e *Engine) Broke() { e.fleet.broke(e.BaseURL) }

func (e *Engine) refused() {
	e.forget()
	e.Health.Refused()
}

// LearnPrefill records a prefill leg that computed so many tokens of its prompt and was answered just now. Picks learn
// the engine's speed from each leg, ejection only from those whose number of tokens is certain. Both take the same sample
// of a leg, in which waiting behind other legs is no slowness. They remember apart: a speed outlasts restarts and ends a
// minute after the last leg, while ejection judges an engine anew after each restart and each ejection.
func (e *Engine) LearnPrefill(tokens int, took time.Duration, certain bool) {
	if computed, took := e.Speed.LearnLeg(tokens, took); certain {
		e.Health.Took(computed, took)
		if computed > 0 && computed == tokens { // no other leg was answered meanwhile
			e.Speed.LearnMarginal(computed, took)
		}
	}
}

// Reachable reports whether the engine is in the fleet, is not down and not suspected to hang, so that its blocks can be read.
func (e *Engine) Reachable() bool {
	return !e.member.gone.Load() && e.answers() && !e.Health.Suspected()
}
