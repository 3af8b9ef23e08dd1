package main

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"
)

// turnLog keeps the line of each turn until a test asks for it. Lines are written
// just after the last byte of an answer.
type turnLog struct {
	mu      sync.Mutex // guards what follows
	lines   map[string]chan map[string]string
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
	if record.Message == "turn" {
		l.line(values["turn"]) <- values
	}
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

// line returns the channel of a turn, which holds its one line.
func (l *turnLog) line(id string) chan map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines[id] == nil {
		l.lines[id] = make(chan map[string]string, 1)
	}
	return l.lines[id]
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

// await returns the line of a turn.
func (l *turnLog) await(t *testing.T, id string) map[string]string {
	t.Helper()
	select {
	case line := <-l.line(id):
		return line
	case <-time.After(10 * time.Second):
		t.Fatalf("turn %s: no log line after 10 s", id)
		return nil
	}
}
