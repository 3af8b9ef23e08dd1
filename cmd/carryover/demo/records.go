package demo

import (
	"context"
	"sync"

	"carryover/server/record"
)

// records remembers what is known of each turn: its instances, and what prefill took from its cache. Clients never learn the former.
type records struct {
	mu   sync.Mutex // guards seen
	seen map[string]chan record.Turn
}

func newRecords() *records { return &records{seen: map[string]chan record.Turn{}} }

// observe is a record.Observer.
func (r *records) observe(rec *record.Turn) {
	if turn := r.turn(rec.Turn); turn != nil {
		turn <- *rec
	}
}

// turn returns the channel of a turn. It holds the turn's only record. After end it
// is nil, so that a demo that keeps serving remembers nothing.
func (r *records) turn(id string) chan record.Turn {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		return nil
	}
	if r.seen[id] == nil {
		r.seen[id] = make(chan record.Turn, 1)
	}
	return r.seen[id]
}

func (r *records) end() {
	r.mu.Lock()
	r.seen = nil
	r.mu.Unlock()
}

// of waits for the record of a turn. It comes at about the same time as the turn's last byte.
func (r *records) of(ctx context.Context, id string) *record.Turn {
	select {
	case rec := <-r.turn(id):
		return &rec
	case <-ctx.Done():
		return &record.Turn{}
	}
}
