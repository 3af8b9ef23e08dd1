package queue

// Kept is how much the queue keeps: claims that hold places, lines, turns that wait.
func (q *Queue) Kept() (held, lines, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.slots), len(q.lines), int(q.waiting.Load())
}
