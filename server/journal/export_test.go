package journal

// Pick returns receipts that want accepts, newest first.
func (j *Journal) Pick(most int, want func(*Receipt) bool) []Receipt { return j.pick(most, want) }
