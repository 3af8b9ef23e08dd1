package fleet

// attempts are those that have an engine: the prompt tokens of each by its number. With numbers the function that gives the
// engine back may be called more than once, and is all that a pick allocates.
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
	e.inFlight.Add(1)
	e.queued.Add(int64(tokens))
	return a.next
}

// end counts it no more. It reports whether it was open.
func (e *Engine) end(number uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	tokens, open := e.attempts.open[number]
	if !open {
		return false
	}
	delete(e.attempts.open, number)
	e.inFlight.Add(-1)
	e.queued.Add(-int64(tokens))
	return true
}
