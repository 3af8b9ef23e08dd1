package fleet

import "time"

// Live is the state of an engine at one moment.
type Live struct {
	// State is "up" for an engine that is picked. All other states mean that it is picked only when no other is left:
	// "down", "open", "half_open", "ejected", "paused", "quarantined", "draining".
	State       string
	Why         string // a sentence for operators, "" for "up"
	Incarnation string // id of the engine's incarnation, "" if it is not known
	InFlight    int    // our attempts
	// Others is how many requests the engine had at its last reading of /metrics, besides ours.
	Others int
	// Running, Waiting and KVUsage come from the last reading of /metrics; KVTokens is how many tokens the KV cache
	// holds, 0 if that is not known. Read is the time of that reading, zero if there was none.
	Running, Waiting int
	// Short is how many of the Waiting requests wait for space in the cache, as far as the engine tells; the others
	// wait for KV that they read.
	Short    int
	KVUsage  float64
	KVTokens int
	Read     time.Time
	// PerToken is how long prefill takes per prompt token, 0 while that is not known.
	PerToken time.Duration
	// Queued is how many prompt tokens prefill is expected to compute for our attempts.
	Queued int
	// Pinned is how many tokens of the cache our unused tickets pin.
	Pinned int
	// Open is how many of the Pinned tokens may be free already: a leg that named them had no answer.
	Open int
	// Besides is how many further tokens are pinned: by tickets on a leg, and by blocks that only decode's TTL frees.
	Besides int
	// CachedBlocks is how many blocks a prefill engine's prefix cache holds, -1 if that is not known (KV events).
	CachedBlocks int
	// Models are the models that it serves, nil while no list is known.
	Models []string
}

// PerToken returns Live's PerToken without the cost of the rest.
func (e *Engine) PerToken() time.Duration { return time.Duration(e.speed.PerToken(e.fleet.clock())) }

// KVTokens returns Live's KVTokens without the cost of the rest.
func (e *Engine) KVTokens() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.load.KVTokens
}

// Live returns the state of the engine now.
func (e *Engine) Live() Live {
	last := e.Last()
	state, why := e.state()
	held := e.Cache.Count()
	pinned, open := last.Pins.Waiting()
	e.mu.Lock()
	defer e.mu.Unlock()
	l := &e.load
	live := Live{
		State: state, Why: why, Incarnation: last.ID(), InFlight: int(e.inFlight.Load()), Others: l.others,
		Running: l.Running, Waiting: l.Waiting, Short: l.Wanting(), KVUsage: l.Usage, KVTokens: l.KVTokens, Read: l.read,
		PerToken: e.PerToken(), Queued: int(e.queued.Load()), Pinned: pinned, Open: open, Besides: last.Pins.Besides(),
		CachedBlocks: held,
	}
	for _, model := range e.Models() {
		live.Models = append(live.Models, model.ID)
	}
	return live
}
