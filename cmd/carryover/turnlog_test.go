package main

import (
	"carryover/server"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"
)

// turnLog keeps the record of each turn until a test asks for it, and what else is logged. A turn is over just
// after the last byte of its answer.
type turnLog struct {
	mu      sync.Mutex // guards what follows
	records map[string]chan server.Record
	defects []string
	notes   []string // level and message of warnings and errors that are not about one turn's end
}

// Enabled implements slog.Handler.
func (*turnLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// WithAttrs implements slog.Handler; the server's logger carries none.
func (l *turnLog) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements slog.Handler.
func (l *turnLog) WithGroup(string) slog.Handler { return l }

// Handle implements slog.Handler.
func (l *turnLog) Handle(_ context.Context, record slog.Record) error {
	values := map[string]string{}
	record.Attrs(func(a slog.Attr) bool {
		values[a.Key] = a.Value.String()
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if record.Message != "turn" && record.Level >= slog.LevelWarn {
		l.notes = append(l.notes, record.Level.String()+" "+record.Message)
	}
	if panicked, ok := values["panic"]; ok {
		l.defects = append(l.defects, record.Message+": "+panicked+"\n"+values["stack"])
	}
	return nil
}

func newTurnLog() *turnLog { return &turnLog{records: map[string]chan server.Record{}} }

// observe is a server.Observer.
func (l *turnLog) observe(record *server.Record) { l.turn(record.Turn) <- *record }

// turn returns the channel of a turn, which holds its one record.
func (l *turnLog) turn(id string) chan server.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.records[id] == nil {
		l.records[id] = make(chan server.Record, 1)
	}
	return l.records[id]
}

// count is how many records of a level say exactly that.
func (l *turnLog) count(note string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, have := range l.notes {
		if have == note {
			n++
		}
	}
	return n
}

func (l *turnLog) panics() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.defects
}

// await returns the record of a turn.
func (l *turnLog) await(t *testing.T, id string) server.Record {
	t.Helper()
	select {
	case record := <-l.turn(id):
		return record
	case <-time.After(time.Minute):
		t.Fatalf("turn %s: no record after a minute", id)
		return server.Record{}
	}
}
