package fleet

import (
	"time"

	"carryover/upstream/fleet/facts"
)

// Live is the state of an engine at one moment.
type Live struct {
	// State is "up" for an engine that is picked. All other states mean that it is picked only when no other is left:
	// "down", "open", "half_open", "ejected", "paused", "quarantined", "draining"; "apart" means that decode can't load KV of
	// prefill, and that the two are not picked together.
	State       string
	Why         string // a sentence for operators, "" for "up"
	Incarnation string // id of the engine's incarnation, "" if it is not known
	InFlight    int    // our attempts
	Queued      int    // prompt tokens that prefill is expected to compute for our attempts
	Load               // at the last reading
	// PerToken is how long prefill takes per prompt token, 0 while that is not known.
	PerToken time.Duration
	// CachedBlocks is how many blocks a prefill engine's prefix cache holds, -1 if that is not known (KV events).
	CachedBlocks int
	// Shapes is of how many shapes of requests, over all models, a prefill engine's /tokenize is believed.
	Shapes int
	// Models are the models that it serves, nil while no list is known.
	Models []string
}

// Load is an engine's load at a reading of /metrics.
type Load struct {
	facts.Use
	Others int       // requests besides those that were ours when the reading began
	Read   time.Time // when it began, zero if there was none
}

// PerToken returns Live's PerToken without the cost of the rest.
func (e *Engine) PerToken() time.Duration {
	return time.Duration(e.seen.speed.PerToken(e.fleet.clock()))
}

// KVTokens returns Live's KVTokens without the cost of the rest.
func (r *readings) KVTokens() int { return r.latest().KVTokens }

// Live returns the state of the engine now.
func (e *Engine) Live() Live {
	last := e.Last()
	live := Live{
		Incarnation: last.ID(), InFlight: int(e.attempts.inFlight.Load()), Queued: int(e.attempts.queued.Load()), PerToken: e.PerToken(),
		CachedBlocks: e.Cache.Count(), Shapes: last.Parity.Equal(), Load: e.latest(),
	}
	live.State, live.Why = e.state()
	for _, model := range e.Models() {
		live.Models = append(live.Models, model.ID)
	}
	return live
}
