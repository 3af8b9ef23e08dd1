package journal

// Pick returns records that want accepts, newest first.
func (j *Journal) Pick(most int, want func(*TurnRecord) bool) []TurnRecord {
	return j.pick(most, func(e *entry) bool { return want(&e.TurnRecord) })
}

// Totals returns the sums over all turns since the start.
func (j *Journal) Totals() Totals {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.totals.clone()
}
