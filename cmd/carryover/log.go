package main

import (
	"io"
	"log/slog"
	"os"

	"github.com/mattn/go-isatty"
)

// newLogger returns the log, and the level that can be changed.
func newLogger(cfg LogConfig, w io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := &slog.LevelVar{}
	level.Set(logLevel(cfg))
	options := &slog.HandlerOptions{Level: level}
	switch logFormat(cfg.Format, w) {
	case logJSON:
		return slog.New(&shapedHandler{Handler: slog.NewJSONHandler(w, options), shape: inMilliseconds}), level
	case logConsole:
		return slog.New(newConsole(w, level, coloured(os.Getenv))), level
	default:
		return slog.New(&shapedHandler{Handler: slog.NewTextHandler(w, options), shape: withoutEmpty, short: true}), level
	}
}

// logFormat chooses the format where none is set.
func logFormat(format string, w io.Writer) string {
	if format != logAuto {
		return format
	}
	if f, ok := w.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		return logConsole
	}
	return logText
}

// coloured reports whether a terminal is to be shown colours (no-color.org).
func coloured(getenv func(string) string) bool {
	return getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

func logLevel(cfg LogConfig) (level slog.Level) {
	_ = level.UnmarshalText([]byte(cfg.Level)) // checked by loadConfig
	return level
}
