package pins

import (
	"time"

	"carryover/convcache"
	"carryover/upstream/fleet"
)

// pinned is what tickets pin on one incarnation of decode.
type pinned struct {
	incarnation *fleet.Incarnation
	oldest      []*pin // a heap by deadline; all tickets of an engine live equally long, so the earliest deadline is the oldest ticket
	tokens      int
	rounds      rounds // rounds of the budget (budget.go)
}

// pin is one ticket in the store.
type pin struct {
	key       convcache.Key
	id        convcache.TicketID
	model     string
	tokens    int // in whole blocks
	freshAsOf time.Time
	deadline  time.Time
	of        *pinned
	at        int // its index in of.oldest
	epoch     int64
	name      uint64 // of its blocks, see states
	shown     string // the conversation's name to operators, "" if that is its key's
}

// Len, Less, Swap, Push and Pop implement heap.Interface for the tickets of an incarnation.
func (p *pinned) Len() int { return len(p.oldest) }

// Less reports whether one ticket is older than another.
func (p *pinned) Less(i, j int) bool { return p.oldest[i].deadline.Before(p.oldest[j].deadline) }

// Swap also updates the index of each ticket.
func (p *pinned) Swap(i, j int) {
	p.oldest[i], p.oldest[j] = p.oldest[j], p.oldest[i]
	p.oldest[i].at, p.oldest[j].at = i, j
}

// Push adds a ticket for package heap.
func (p *pinned) Push(x any) {
	added := x.(*pin)
	added.at = len(p.oldest)
	p.oldest = append(p.oldest, added)
}

// Pop removes the last ticket for package heap.
func (p *pinned) Pop() any {
	last := len(p.oldest) - 1
	x := p.oldest[last]
	p.oldest[last] = nil
	p.oldest = p.oldest[:last]
	return x
}
