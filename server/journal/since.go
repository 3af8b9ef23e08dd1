package journal

// Numbered is a receipt with its place in the order in which turns have ended, which begins at 1.
type Numbered struct {
	Number uint64 `json:"n"`
	TurnRecord
}

// Since returns the receipts of the turns after the one of that number, of which at most so many, the newest, oldest first; and what
// all turns came to at the same moment. The newest turn's number is that of all turns. It copies under the lock, and no more than it returns.
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
