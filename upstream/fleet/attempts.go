package fleet

// attempts are the attempts that use an engine: the prompt tokens of each by its number. Numbers allow done to be
// called more than once, and make it all that a pick allocates.
type attempts struct {
	open map[uint64]int
	next uint64
}

// begin counts an attempt and returns its number.
func (e *Engine) begin(tokens int) (number uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := &e.attempts
	if a.open == nil {
		a.open = map[uint64]int{}
	}
	a.next++
	a.open[a.next] = tokens
	e.Health.Begin(a.next)
	e.inFlight.Add(1)
	e.queued.Add(int64(tokens))
	return a.next
}

// end stops counting the attempt, and reports whether it was counted. It needs no lock of the Fleet.
func (e *Engine) end(number uint64) bool {
	e.mu.Lock()
	tokens, open := e.attempts.open[number]
	last := false
	if open {
		delete(e.attempts.open, number)
		last = e.inFlight.Add(-1) == 0
		e.queued.Add(-int64(tokens))
		e.Health.End(number)
	}
	e.mu.Unlock()
	// Set marks an engine as gone before it reads inFlight, so one of the two sides sees the other.
	if last && e.gone.Load() {
		e.fleet.left(e)
	}
	return open
}
