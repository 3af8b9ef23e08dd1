package main

import (
	"io"
	"log/slog"
)

// newLogger returns the log, and the level that can be changed.
func newLogger(cfg LogConfig, w io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := &slog.LevelVar{}
	level.Set(logLevel(cfg))
	options := &slog.HandlerOptions{Level: level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options)), level
	}
	return slog.New(slog.NewTextHandler(w, options)), level
}

func logLevel(cfg LogConfig) (level slog.Level) {
	_ = level.UnmarshalText([]byte(cfg.Level)) // checked by loadConfig
	return level
}
