package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"carryover/server/record"
)

// turnLog keeps the record of each turn until a test asks for it, and what else is logged. A turn is over just
// after the last byte of its answer.
type turnLog struct {
	mu      sync.Mutex // guards what follows
	records map[string]chan record.Turn
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
func (l *turnLog) Handle(_ context.Context, rec slog.Record) error {
	values := map[string]string{}
	rec.Attrs(func(a slog.Attr) bool {
		values[a.Key] = a.Value.String()
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if rec.Message != "turn" && rec.Level >= slog.LevelWarn {
		l.notes = append(l.notes, rec.Level.String()+" "+rec.Message)
	}
	if panicked, ok := values["panic"]; ok {
		l.defects = append(l.defects, rec.Message+": "+panicked+"\n"+values["stack"])
	}
	return nil
}

func newTurnLog() *turnLog { return &turnLog{records: map[string]chan record.Turn{}} }

// observe is a record.Observer.
func (l *turnLog) observe(rec *record.Turn) {
	select {
	case l.turn(rec.Turn) <- *rec:
	default: // nobody has asked for the first
		l.mu.Lock()
		defer l.mu.Unlock()
		l.defects = append(l.defects, "two turns are called "+rec.Turn)
	}
}

// turn returns the channel of a turn, which holds its one record.
func (l *turnLog) turn(id string) chan record.Turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.records[id] == nil {
		l.records[id] = make(chan record.Turn, 1)
	}
	return l.records[id]
}

// count is how many records of a level say exactly that.
func (l *turnLog) count(note string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(l.notes), func(have string) bool { return have != note }))
}

func (l *turnLog) panics() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.defects
}

// wait returns the record of a turn.
func (l *turnLog) wait(id string) (record.Turn, error) {
	select {
	case rec := <-l.turn(id):
		return rec, nil
	case <-time.After(time.Minute):
		return record.Turn{}, fmt.Errorf("turn %s: no record after a minute", id)
	}
}

func (l *turnLog) await(t *testing.T, id string) record.Turn {
	t.Helper()
	rec, err := l.wait(id)
	noError(t, err)
	return rec
}
