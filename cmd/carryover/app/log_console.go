package app

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Escape sequences of ECMA-48 (SGR).
const (
	sgrReset, sgrBold, sgrFaint     = "\x1b[0m", "\x1b[1m", "\x1b[2m"
	sgrRed, sgrGreen, sgrYellow     = "\x1b[31m", "\x1b[32m", "\x1b[33m"
	consoleTime, consoleMessageSize = "15:04:05.000", 6
)

// console writes records for people at a terminal: the time of day, the level, the message, and the members that are not empty. It quotes
// text with control characters, so that the text can't control the terminal.
type console struct {
	w      io.Writer
	level  slog.Leveler
	colour bool
	mu     *sync.Mutex // guards w, also for what With made of this
	with   []byte      // members of all records
	group  string      // what names of members begin with
}

func newConsole(w io.Writer, level slog.Leveler, colour bool) *console {
	return &console{w: w, level: level, colour: colour, mu: &sync.Mutex{}}
}

// OmitsEmpty implements record.EmptyOmitter.
func (c *console) OmitsEmpty() bool { return true }

// Enabled implements slog.Handler.
func (c *console) Enabled(_ context.Context, level slog.Level) bool { return level >= c.level.Level() }

// Handle implements slog.Handler.
func (c *console) Handle(_ context.Context, r slog.Record) error {
	b := make([]byte, 0, 512)
	if !r.Time.IsZero() {
		b = c.painted(b, sgrFaint, r.Time.Format(consoleTime))
		b = append(b, ' ')
	}
	name := r.Level.String()
	b = c.painted(b, levelColour(r.Level), name)
	for range max(1, consoleMessageSize-len(name)) {
		b = append(b, ' ')
	}
	b = c.painted(b, sgrBold, unsteered(r.Message))
	b = append(b, c.with...)
	r.Attrs(func(a slog.Attr) bool {
		b = c.member(b, c.group, a)
		return true
	})
	b = append(b, '\n')
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.w.Write(b)
	return err
}

// WithAttrs implements slog.Handler.
func (c *console) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *c
	next.with = slices.Clone(c.with)
	for _, a := range attrs {
		next.with = c.member(next.with, c.group, a)
	}
	return &next
}

// WithGroup implements slog.Handler.
func (c *console) WithGroup(name string) slog.Handler {
	next := *c
	if name != "" {
		next.group += name + "."
	}
	return &next
}

// member appends a member, those of a group one by one, and nothing for one that is empty.
func (c *console) member(b []byte, group string, a slog.Attr) []byte {
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		if a.Key != "" {
			group += a.Key + "."
		}
		for _, inner := range value.Group() {
			b = c.member(b, group, inner)
		}
		return b
	}
	text := value.String()
	if a.Key == "" || text == "" {
		return b
	}
	b = append(b, ' ')
	b = c.painted(b, sgrFaint, unsteered(group+a.Key)+"=")
	return c.painted(b, valueColour(a.Key, text), quotedIfNeeded(text))
}

func (c *console) painted(b []byte, colour, text string) []byte {
	if !c.colour || colour == "" {
		return append(b, text...)
	}
	b = append(b, colour...)
	b = append(b, text...)
	return append(b, sgrReset...)
}

func levelColour(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return sgrRed
	case level >= slog.LevelWarn:
		return sgrYellow
	case level >= slog.LevelInfo:
		return sgrGreen
	default:
		return sgrFaint
	}
}

// valueColour lets the eye find what a turn came to.
func valueColour(key, value string) string {
	switch {
	case key == "error":
		return sgrRed
	case key == "outcome" && (value == "hit" || value == "prefix"):
		return sgrGreen
	case key == "outcome" && value == "miss":
		return sgrYellow
	default:
		return ""
	}
}

// unsteered returns a text that a terminal shows and does not obey.
func unsteered(text string) string {
	if obeyed(text) {
		return strconv.Quote(text)
	}
	return text
}

func obeyed(text string) bool {
	for _, r := range text {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return true
		}
	}
	return false
}

// quotedIfNeeded returns a value in a form whose end is unambiguous.
func quotedIfNeeded(text string) string {
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c == '"' || c == '=' {
			return strconv.Quote(text)
		}
	}
	return unsteered(text)
}
