package main

import (
	"context"
	"sync"

	"carryover/server"
)

// records remembers what is known of each turn: its instances, and what prefill took from its cache. Clients never learn the former.
type records struct {
	mu   sync.Mutex // guards seen
	seen map[string]chan server.Record
}

func newRecords() *records { return &records{seen: map[string]chan server.Record{}} }

// observe is a server.Observer.
func (r *records) observe(record *server.Record) {
	if turn := r.turn(record.Turn); turn != nil {
		turn <- *record
	}
}

// turn returns the channel of a turn. It holds the turn's only record. After end it
// is nil, so that a demo that keeps serving remembers nothing.
func (r *records) turn(id string) chan server.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		return nil
	}
	if r.seen[id] == nil {
		r.seen[id] = make(chan server.Record, 1)
	}
	return r.seen[id]
}

func (r *records) end() {
	r.mu.Lock()
	r.seen = nil
	r.mu.Unlock()
}

// of waits for the record of a turn. It comes at about the same time as the turn's last byte.
func (r *records) of(ctx context.Context, id string) *server.Record {
	select {
	case record := <-r.turn(id):
		return &record
	case <-ctx.Done():
		return &server.Record{}
	}
}
