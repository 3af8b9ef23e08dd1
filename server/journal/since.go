package journal

// Numbered is a turn record with its number in the order in which turns have ended, from 1.
type Numbered struct {
	Number uint64 `json:"n"`
	TurnRecord
}

// Since returns the records of the turns after the one with this number, oldest first. If there are more than so many, it returns the newest.
// It also returns the totals of the same moment. The newest turn's number is the number of all turns. It copies under the lock, and only what
// it returns.
func (j *Journal) Since(number uint64, most int) ([]Numbered, Totals) {
	j.mu.Lock()
	defer j.mu.Unlock()
	turns := j.turns.Load()
	oldest := turns - min(turns, uint64(len(j.ring)), uint64(max(most, 0)))
	since := []Numbered{}
	for n := max(oldest, number); n < turns; n++ {
		since = append(since, Numbered{n + 1, j.ring[n%uint64(len(j.ring))].Load().TurnRecord})
	}
	return since, j.totals.clone()
}
