package fleet

import (
	"math"
	"sync/atomic"
)

// What a prefill engine has at most while KV is handed back to it. A hand-back is for a turn that may come, and gives way to those that
// are there.
const (
	// mostBeside is how many requests it has, hand-backs included. In a fleet of four prefill engines at 50 turns per second each
	// has two to four legs in flight, which leaves as many places for hand-backs; one with twice as many has a queue, and a leg
	// that reads thousands of tokens would make each turn in it wait.
	mostBeside = 8
	// fullAt is the share of its KV cache in use: blocks that only the prefix cache has are not in use. In the last tenth a leg
	// takes the room of a prompt that is being computed, which is preempted and computed again.
	fullAt = 0.9
)

// TakesHandBack reports whether KV may be handed back to the engine now without a turn being slowed: picks prefer the engine, it has
// shown by a leg that it serves if its circuit was open, its incarnation is known and not quarantined, and at its last reading, which is no
// older than picks believe, it had room and no request waited for some. Requests that wait for KV which they read, as tickets have
// them do and hand-backs themselves, are not among those, where the engine tells them apart.
//
// It promises nothing about the moment after. Nothing is asked of the engine.
func (e *Engine) TakesHandBack() bool {
	v, now := &e.seen, e.fleet.clock()
	if e.gone.Load() || !v.up(now) || int64(now) >= v.stale.Load() || !v.last.Load().Known() || e.Quarantined() {
		return false
	}
	has := int(v.others.Load()) + int(e.inFlight.Load()) + int(e.handBacks.Load())
	if has >= mostBeside || math.Float64frombits(v.usage.Load()) >= fullAt {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	// A circuit that is half-open waits for a turn to try the engine. A hand-back that failed would cost its ticket.
	return e.circuit.pause == 0 && (e.load.short == 0 || has == 0) // what waited has gone
}

// BeginHandBack counts a hand-back to the engine until done is called; more calls do nothing. It is no attempt of a turn: it takes up no
// place of one, and does not move picks. Without it, readings would take its request for one of others, which does.
func (e *Engine) BeginHandBack() (done func()) {
	e.handBacks.Add(1)
	var ended atomic.Bool
	return func() {
		if ended.CompareAndSwap(false, true) {
			e.handBacks.Add(-1)
		}
	}
}
