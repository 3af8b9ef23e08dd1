package journal

import (
	"sync"
	"time"

	"carryover/server"
)

// Config bounds a journal. The zero value gets the defaults.
type Config struct {
	Turns int // receipts that are kept, 4,096: some 2 MB
}

// Journal keeps the last turns. It is safe for concurrent use.
type Journal struct {
	mu     sync.Mutex // guards the rest
	ring   []Receipt  // the receipt of turn n is at n modulo its length
	turns  uint64     // that were observed
	totals Totals
}

// New returns an empty journal.
func New(cfg Config) *Journal {
	if cfg.Turns <= 0 {
		cfg.Turns = 4096
	}
	return &Journal{ring: make([]Receipt, cfg.Turns), totals: newTotals(time.Now())}
}

// Observe takes in a turn that has ended. It is a server.Observer.
func (j *Journal) Observe(r *server.Record) {
	receipt := receiptOf(r)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ring[j.turns%uint64(len(j.ring))] = receipt
	j.turns++
	j.totals.add(&receipt)
}

// Recent returns the newest receipts, at most so many, newest first.
func (j *Journal) Recent(most int) []Receipt {
	return j.pick(most, func(*Receipt) bool { return true })
}

// Conversation returns what is kept of a conversation, newest first. It is named as in the log.
func (j *Journal) Conversation(hash string) []Receipt {
	return j.pick(len(j.ring), func(r *Receipt) bool { return hash != "" && r.Conversation == hash })
}

// pick returns receipts that want accepts, newest first.
func (j *Journal) pick(most int, want func(*Receipt) bool) []Receipt {
	picked := []Receipt{}
	j.mu.Lock()
	defer j.mu.Unlock()
	kept := min(j.turns, uint64(len(j.ring)))
	for n := range kept {
		if r := &j.ring[(j.turns-1-n)%uint64(len(j.ring))]; len(picked) < most && want(r) {
			picked = append(picked, *r)
		}
	}
	return picked
}

// Totals returns what all turns since the start come to.
func (j *Journal) Totals() Totals {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.totals.clone()
}
