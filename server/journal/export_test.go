package journal

// Pick returns records that want accepts, newest first.
func (j *Journal) Pick(most int, want func(*TurnRecord) bool) []TurnRecord { return j.pick(most, want) }
