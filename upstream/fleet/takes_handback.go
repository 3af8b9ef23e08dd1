package fleet

import "sync"

// Limits of a prefill engine's load for hand-backs. A hand-back serves a turn that may come, and gives way to turns that are there.
const (
	// mostBeside is the number of requests, hand-backs included, from which on the engine gets no hand-back. In a fleet of four prefill engines
	// at 50 turns per second each has two to four legs in flight, which leaves as many for hand-backs. An engine with twice as many requests has
	// a queue, and a leg that reads thousands of tokens would delay each turn in it.
	mostBeside = 8
	// fullAt is the share of the KV cache in use from which on the engine gets no hand-back. Blocks that only the prefix cache holds are not in
	// use. Above it, a hand-back may take space from a prompt that is being computed, which vLLM then preempts and computes again.
	fullAt = 0.9
)

// TakesHandBack reports whether a hand-back to the engine now would delay no turn. The engine must be one that picks
// prefer, with a known incarnation that is not quarantined; if its circuit was open, a turn's leg must have closed it;
// and its last reading must be recent and show space in the cache and no request that waits for space. Requests that
// wait for KV which they read (tickets, hand-backs) do not count as waiting where the engine tells them apart.
//
// The answer holds for this moment only. Nothing is sent to the engine.
func (e *Engine) TakesHandBack() bool {
	load, now := e.load.Load(), e.fleet.clock()
	if e.gone.Load() || !e.Health.Up(now) || !load.counts(now) || !e.last.Load().Known() || e.Quarantined() {
		return false
	}
	has := load.Others + e.ours()
	// While the circuit is half-open a turn is to try the engine: a hand-back that failed would lose its ticket. Without requests, nothing
	// waits any more.
	return has < mostBeside && load.Usage < fullAt && e.Health.Closed() && (load.Short == 0 || has == 0)
}

// BeginHandBack counts a hand-back to the engine until done is called; further calls do nothing. A hand-back is no
// attempt: it does not count against MaxInFlight and does not influence picks. It must be counted, or the next reading
// would take its request for one of other clients, which does influence picks.
func (e *Engine) BeginHandBack() (done func()) {
	e.handBacks.Add(1)
	return sync.OnceFunc(func() { e.handBacks.Add(-1) })
}
