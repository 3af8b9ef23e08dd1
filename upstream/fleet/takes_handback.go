package fleet

import (
	"math"
	"sync/atomic"
)

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
	v, now := &e.seen, e.fleet.clock()
	if e.member.gone.Load() || !v.health.Up(now) || int64(now) >= v.stale.Load() || !v.last.Load().Known() || e.Quarantined() {
		return false
	}
	has := int(v.others.Load()) + e.attempts.all()
	if has >= mostBeside || math.Float64frombits(v.usage.Load()) >= fullAt {
		return false
	}
	// While the circuit is half-open a turn is to try the engine: a hand-back that failed would lose its ticket.
	return e.Health.Closed() && (e.latest().Short == 0 || has == 0) // without requests, nothing waits any more
}

// BeginHandBack counts a hand-back to the engine until done is called; further calls do nothing. A hand-back is no
// attempt: it does not count against MaxInFlight and does not influence picks. It must be counted, or the next reading
// would take its request for one of other clients, which does influence picks.
func (e *Engine) BeginHandBack() (done func()) {
	e.attempts.handBacks.Add(1)
	var ended atomic.Bool
	return func() {
		if ended.CompareAndSwap(false, true) {
			e.attempts.handBacks.Add(-1)
		}
	}
}
