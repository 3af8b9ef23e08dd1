package fleet

import (
	"sync"
	"sync/atomic"
	"time"
)

// failedFor is how long a leg that failed counts as a request that its engine runs.
const failedFor = 10 * time.Second

// attempts are the legs of ours that an engine has: attempts of turns, with the prompt tokens of each by its number, and
// hand-backs. Numbers allow done to be called more than once, and make it all that a pick allocates.
type attempts struct {
	inFlight  atomic.Int64 // attempts that use the engine
	queued    atomic.Int64 // prompt tokens of these attempts
	handBacks atomic.Int64 // hand-back legs to this prefill engine
	failed    atomic.Int64 // legs that failed lately

	mu   sync.Mutex // guards the rest. Lock order: Picker, attempts
	open map[uint64]int
	last uint64
}

// all returns how many requests of ours the engine has.
func (a *attempts) all() int { return int(a.inFlight.Load() + a.handBacks.Load()) }

// begin counts an attempt and returns its number.
func (a *attempts) begin(tokens int) (number uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open == nil {
		a.open = map[uint64]int{}
	}
	a.last++
	a.open[a.last] = tokens
	a.inFlight.Add(1)
	a.queued.Add(int64(tokens))
	return a.last
}

// end stops counting the attempt. It reports whether it was counted, and whether none is left.
func (a *attempts) end(number uint64) (counted, none bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	tokens, counted := a.open[number]
	if !counted {
		return false, false
	}
	delete(a.open, number)
	a.queued.Add(-int64(tokens))
	return true, a.inFlight.Add(-1) == 0
}

// begin counts an attempt and returns its number.
func (e *Engine) begin(tokens int) (number uint64) {
	number = e.attempts.begin(tokens)
	e.Health.Begin(number)
	return number
}

// end stops counting the attempt, and reports whether it was counted. It needs no lock of the Fleet.
func (e *Engine) end(number uint64) bool {
	counted, none := e.attempts.end(number)
	if counted {
		e.Health.End(number)
	}
	// Set marks an engine as gone before it reads inFlight, so one of the two sides sees the other.
	if none && e.member.gone.Load() {
		e.fleet.left(e)
	}
	return counted
}

// Burden has a leg that failed count as a running request for a while: an engine that fails at once would look idle, and get all turns.
func (e *Engine) Burden() {
	e.attempts.failed.Add(1)
	time.AfterFunc(failedFor, func() { e.attempts.failed.Add(-1) })
}
