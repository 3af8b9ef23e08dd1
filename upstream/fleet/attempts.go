package fleet

// attempts are those that have an engine, by number. With numbers the function that gives the engine back may be called more
// than once, and is all that a pick allocates.
type attempts struct {
	open map[uint64]attempt
	next uint64
}

// attempt is one of them.
type attempt struct {
	tokens int // of its prompt
	trial  int // its number among those that have tried a half-open circuit, 0 if it does not
}

// begin counts an attempt and returns its number. It needs the lock of the Fleet, so that a half-open circuit is tried by one.
func (e *Engine) begin(tokens int) (number uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := &e.attempts
	if a.open == nil {
		a.open = map[uint64]attempt{}
	}
	a.next++
	trial := e.circuit.begin(e.fleet.now)
	if trial != 0 {
		e.show()
	}
	a.open[a.next] = attempt{tokens, trial}
	e.inFlight.Add(1)
	e.queued.Add(int64(tokens))
	return a.next
}

// end counts it no more. It reports whether it was open.
func (e *Engine) end(number uint64) bool {
	last, open := e.close(number)
	// Set marks an engine as gone before it looks what is in flight, so that either side sees the other.
	if last && e.gone.Load() {
		e.fleet.left(e)
	}
	return open
}

func (e *Engine) close(number uint64) (last, open bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, open := e.attempts.open[number]
	if !open {
		return false, false
	}
	delete(e.attempts.open, number)
	if a.trial != 0 {
		e.circuit.end(a.trial)
		e.show()
	}
	e.queued.Add(-int64(a.tokens))
	return e.inFlight.Add(-1) == 0, true
}
