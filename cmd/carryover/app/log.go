package app

import (
	"io"
	"log/slog"
	"time"

	"carryover/cmd/carryover/config"
)

// NewLogger returns the log, and the level that can be changed.
func NewLogger(cfg config.LogConfig, w io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := &slog.LevelVar{}
	level.Set(logLevel(cfg))
	if cfg.Format == config.LogJSON {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: inMilliseconds})), level
	}
	return slog.New(forPeople{slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: withoutEmpty})}), level
}

// forPeople writes no members that say nothing.
type forPeople struct{ *slog.TextHandler }

// OmitsEmpty implements record.EmptyOmitter.
func (forPeople) OmitsEmpty() bool { return true }

// withoutEmpty leaves out texts that are empty.
func withoutEmpty(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindString && a.Value.String() == "" {
		return slog.Attr{}
	}
	return a
}

// inMilliseconds shows a duration as a number whose name says its unit: JSON has no durations, and slog would write nanoseconds.
func inMilliseconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.Float64(a.Key+"_ms", float64(a.Value.Duration())/float64(time.Millisecond))
	}
	return a
}

func logLevel(cfg config.LogConfig) (level slog.Level) {
	_ = level.UnmarshalText([]byte(cfg.Level)) // checked by Load
	return level
}
