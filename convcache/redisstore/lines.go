package redisstore

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// lines are what a store logs of values and tickets, each line at most once a minute.
type lines struct {
	logger                *slog.Logger
	now                   func() time.Time
	forged, fenced, large limited
}

// limited lets a line through once a minute.
type limited struct{ last atomic.Int64 } // Unix seconds

func (l *limited) due(now time.Time) bool {
	last := l.last.Load()
	return now.Unix()-last >= 60 && l.last.CompareAndSwap(last, now.Unix())
}

// warnForged reports a value that is not authentic.
func (l *lines) warnForged() {
	if l.forged.due(l.now()) {
		l.logger.Warn("redis holds values that are not authentic: another version wrote them, or somebody else did")
	}
}

// tellLarge reports a ticket that is not shared for its size.
func (l *lines) tellLarge(size, most int) {
	if l.large.due(l.now()) {
		l.logger.Info("a ticket is too large for redis and stays in this process", "bytes", size, "most", most)
	}
}

// tellFenced reports a ticket of another master.
func (l *lines) tellFenced() {
	if l.fenced.due(l.now()) {
		l.logger.Info("redis has failed over or restarted; tickets from before are not used")
	}
}
