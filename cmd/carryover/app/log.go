package app

import (
	"io"
	"log/slog"
	"os"

	"github.com/mattn/go-isatty"

	"carryover/cmd/carryover/config"
)

// NewLogger returns the log, and the level that can be changed.
func NewLogger(cfg config.LogConfig, w io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := &slog.LevelVar{}
	level.Set(logLevel(cfg))
	options := &slog.HandlerOptions{Level: level}
	switch logFormat(cfg.Format, w) {
	case config.LogJSON:
		return slog.New(&shapedHandler{Handler: slog.NewJSONHandler(w, options), shape: inMilliseconds}), level
	case config.LogConsole:
		return slog.New(newConsole(w, level, coloured(os.Getenv))), level
	default:
		return slog.New(&shapedHandler{Handler: slog.NewTextHandler(w, options), shape: withoutEmpty, short: true}), level
	}
}

// logFormat chooses the format where none is set.
func logFormat(format string, w io.Writer) string {
	if format != config.LogAuto {
		return format
	}
	if f, ok := w.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		return config.LogConsole
	}
	return config.LogText
}

// coloured reports whether a terminal is to be shown colours (no-color.org).
func coloured(getenv func(string) string) bool {
	return getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

func logLevel(cfg config.LogConfig) (level slog.Level) {
	_ = level.UnmarshalText([]byte(cfg.Level)) // checked by Load
	return level
}
