// Package logtest is a log that a test looks at while it is written. Only tests import it.
package logtest

import (
	"log/slog"
	"strings"
	"sync"
)

// Log keeps what is logged, as text. The zero value is empty; it is safe for concurrent use.
type Log struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

// Write appends a line.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// Logger returns a logger that writes to the log.
func (l *Log) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// String returns all that was logged.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Count returns how often a text was logged.
func (l *Log) Count(text string) int { return strings.Count(l.String(), text) }

// Lines returns the lines with a text in them.
func (l *Log) Lines(text string) (found []string) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}
