package fleet

import "time"

// Live is the state of an engine at a moment.
type Live struct {
	// State says whether the engine is picked: "up", or why only if no other is left ("down", "open", "half_open",
	// "ejected", "paused", "quarantined", "draining").
	State       string
	Why         string // a sentence for operators, "" for "up"
	Incarnation string // of the engine, "" if it is not known
	InFlight    int    // attempts of ours
	// Others is how many requests the engine had at the last reading of /metrics beyond those that were ours.
	Others int
	// Running, Waiting and KVUsage are those of the last reading of /metrics; KVTokens is how many tokens the KV cache holds,
	// 0 if that is not known. Read is when they were read, zero if they never were.
	Running, Waiting int
	// Short is how many of Waiting wait for room in the cache, as far as the engine tells: not those that wait for KV which they read.
	Short    int
	KVUsage  float64
	KVTokens int
	Read     time.Time
	// PerToken is how long prefill takes for a token of a prompt, 0 while that is not known.
	PerToken time.Duration
	// Queued is how many prompt tokens the attempts of ours have that prefill is expected to compute.
	Queued int
	// Pinned is how many tokens of the cache unused tickets of ours hold that wait for their release.
	Pinned int
	// Open is how many of these may be free already: a leg that named them had no answer, and their release makes it certain.
	Open int
	// Besides is how many more are pinned, by tickets that are on a leg now and by what nothing frees before decode's TTL does.
	Besides int
	// CachedBlocks is how many blocks are in the prefix cache of a prefill engine, -1 if that is not known (KV events).
	CachedBlocks int
	// Models are those that it serves, nil while no list is known.
	Models []string
}

// PerToken is what Live says of it, without the cost of the rest.
func (e *Engine) PerToken() time.Duration { return time.Duration(e.perToken(e.fleet.clock())) }

// KVTokens is what Live says of it, without the cost of the rest.
func (e *Engine) KVTokens() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.load.kvTokens
}

// Live returns the state of the engine now.
func (e *Engine) Live() Live {
	last := e.Last()
	state, why := e.state()
	held := e.cached.count()
	pinned, open := last.pinned()
	e.mu.Lock()
	defer e.mu.Unlock()
	l := &e.load
	live := Live{
		State: state, Why: why, Incarnation: last.ID(), InFlight: int(e.inFlight.Load()), Others: l.others,
		Running: l.running, Waiting: l.waiting, Short: l.wanting(), KVUsage: l.usage, KVTokens: l.kvTokens, Read: l.read,
		PerToken: e.PerToken(), Queued: int(e.queued.Load()), Pinned: pinned, Open: open, Besides: last.otherPins(),
		CachedBlocks: held,
	}
	for _, model := range e.listing.models {
		live.Models = append(live.Models, model.ID)
	}
	return live
}
