package queue

import (
	"container/heap"
	"container/list"
	"time"
)

// line is the turns that wait for slots of one class. The queue's lock guards it.
type line struct {
	tenants []*tenant          // a heap, the next to be served first
	named   map[string]*tenant // the same by name
	told    *waiter            // the turn that was told to try and has not reported the result yet
	again   bool               // a slot was freed since then
}

type tenant struct {
	name  string
	slots int
	turns *list.List // of *waiter, the longest waiting first
	at    int
}

type waiter struct {
	claim   Claim
	line    *line
	came    uint64        // the smaller, the longer it has waited
	element *list.Element // in its tenant's turns, nil once it has left the line
	// told receives nil when the turn may try, or the reason why it may not wait longer. It holds one value, because a turn is told nothing
	// before it has reported its last try.
	told chan error
}

func newLine() *line { return &line{named: map[string]*tenant{}} }

// Len, Less, Swap, Push and Pop make a heap of the tenants.
func (l *line) Len() int { return len(l.tenants) }

// Less serves the tenant with fewer slots first, and of two with as many the one that has waited for longer.
func (l *line) Less(i, j int) bool {
	a, b := l.tenants[i], l.tenants[j]
	if a.slots != b.slots {
		return a.slots < b.slots
	}
	return a.oldest().came < b.oldest().came
}

func (l *line) Swap(i, j int) {
	l.tenants[i], l.tenants[j] = l.tenants[j], l.tenants[i]
	l.tenants[i].at, l.tenants[j].at = i, j
}

func (l *line) Push(t any) {
	added := t.(*tenant)
	added.at = len(l.tenants)
	l.tenants = append(l.tenants, added)
}

func (l *line) Pop() any {
	last := len(l.tenants) - 1
	t := l.tenants[last]
	l.tenants[last] = nil
	l.tenants = l.tenants[:last]
	return t
}

func (t *tenant) oldest() *waiter { return t.turns.Front().Value.(*waiter) }
func (t *tenant) newest() *waiter { return t.turns.Back().Value.(*waiter) }

// waitingOf is how many turns of a tenant wait. l may be nil.
func (l *line) waitingOf(name string) int {
	if l == nil || l.named[name] == nil {
		return 0
	}
	return l.named[name].turns.Len()
}

func (l *line) all() (all []*waiter) {
	for _, t := range l.tenants {
		for e := t.turns.Front(); e != nil; e = e.Next() {
			all = append(all, e.Value.(*waiter))
		}
	}
	return all
}

// add puts a turn behind its tenant's others. slots is the number that the tenant holds.
func (l *line) add(w *waiter, slots int) {
	t := l.named[w.claim.Tenant]
	if t == nil {
		t = &tenant{name: w.claim.Tenant, slots: slots, turns: list.New()}
		l.named[t.name] = t
		w.element = t.turns.PushBack(w)
		heap.Push(l, t)
		return
	}
	w.element = t.turns.PushBack(w)
}

func (l *line) remove(w *waiter) {
	t := l.named[w.claim.Tenant]
	t.turns.Remove(w.element)
	w.element = nil
	if t.turns.Len() > 0 {
		heap.Fix(l, t.at)
		return
	}
	heap.Remove(l, t.at)
	delete(l.named, t.name)
}

// wake tells the next turn to try. A turn that was told before tries again.
func (l *line) wake() {
	if l.told != nil {
		l.again = true
		return
	}
	l.again = false // a try that begins after now sees whatever has been freed
	if len(l.tenants) > 0 {
		l.told = l.tenants[0].oldest()
		l.told.told <- nil
	}
}

// hold changes how many slots a claim has. The caller holds q.mu, as for all methods below that do not lock it.
func (q *Queue) hold(c Claim, change int) {
	slots := q.slots[c] + change
	if slots == 0 {
		delete(q.slots, c)
	} else {
		q.slots[c] = slots
	}
	l := q.lines[c.Class]
	if l == nil {
		return
	}
	if t := l.named[c.Tenant]; t != nil {
		t.slots = slots
		heap.Fix(l, t.at)
	}
}

// remove takes a turn out of its line, and the line out of the queue if it was the last one.
func (q *Queue) remove(w *waiter) {
	q.waiting.Add(-1)
	w.line.remove(w)
	if len(w.line.tenants) == 0 {
		delete(q.lines, w.claim.Class)
	}
}

// displace makes room for a turn of this claim: it turns away the newest turn of the tenant with the most turns in a line. It reports false
// if the claim's tenant has as many turns in its line, or one fewer.
func (q *Queue) displace(c Claim) bool {
	var most *tenant
	for _, l := range q.lines {
		for _, t := range l.tenants {
			if most == nil || t.turns.Len() > most.turns.Len() {
				most = t
			}
		}
	}
	if most == nil || most.turns.Len() <= q.lines[c.Class].waitingOf(c.Tenant)+1 {
		return false
	}
	w := most.newest() // there are two at least, and the one that was told to try is the oldest
	q.remove(w)
	w.told <- ErrFull
	return true
}

// served counts the slot that a turn of the line has taken, and lets the next turn try, because more than one slot may be free.
func (q *Queue) served(w *waiter, took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waitedFor(took)
	q.remove(w)
	q.hold(w.claim, 1)
	w.line.told = nil
	w.line.wake()
}

// unserved lets the line go on waiting after a failed try, or tells the turn to try again if a slot was freed meanwhile.
func (q *Queue) unserved(w *waiter) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.line.told = nil
	switch {
	case q.closed:
		return ErrClosed
	case w.line.again:
		w.line.wake()
	}
	return nil
}

// quit removes a turn that has no slot. If the turn was told to try and has not, the next one is told.
func (q *Queue) quit(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.element == nil {
		return
	}
	q.remove(w)
	if w.line.told == w {
		w.line.told = nil
		w.line.wake()
	}
}
