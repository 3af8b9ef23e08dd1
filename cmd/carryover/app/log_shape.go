package app

import (
	"context"
	"log/slog"
	"slices"
	"time"
)

// shapedHandler changes the members of records before they are written. Most have none that change, and are passed on as they are.
type shapedHandler struct {
	slog.Handler
	shape func(slog.Attr) (changed slog.Attr, same bool) // an empty member is left out
	short bool
}

// OmitsEmpty implements record.EmptyOmitter.
func (h *shapedHandler) OmitsEmpty() bool { return h.short }

// Handle implements slog.Handler.
func (h *shapedHandler) Handle(ctx context.Context, r slog.Record) error {
	same := true
	r.Attrs(func(a slog.Attr) bool {
		_, same = h.shape(a)
		return same
	})
	if same {
		return h.Handler.Handle(ctx, r)
	}
	changed := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		a, _ = h.shape(a)
		changed.AddAttrs(a) // which ignores an empty one
		return true
	})
	return h.Handler.Handle(ctx, changed)
}

// WithAttrs implements slog.Handler.
func (h *shapedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	attrs = slices.Clone(attrs)
	for i, a := range attrs {
		attrs[i], _ = h.shape(a)
	}
	return &shapedHandler{h.Handler.WithAttrs(attrs), h.shape, h.short}
}

// WithGroup implements slog.Handler.
func (h *shapedHandler) WithGroup(name string) slog.Handler {
	return &shapedHandler{h.Handler.WithGroup(name), h.shape, h.short}
}

// withoutEmpty leaves out texts that are empty.
func withoutEmpty(a slog.Attr) (slog.Attr, bool) {
	if a.Value.Kind() == slog.KindString && a.Value.String() == "" {
		return slog.Attr{}, false
	}
	return a, true
}

// inMilliseconds shows a duration as a number whose name says its unit: JSON has no durations, and slog would write nanoseconds.
func inMilliseconds(a slog.Attr) (slog.Attr, bool) {
	if a.Value.Kind() == slog.KindDuration {
		return slog.Float64(a.Key+"_ms", float64(a.Value.Duration())/float64(time.Millisecond)), false
	}
	return a, true
}
