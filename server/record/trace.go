package record

import (
	"crypto/rand"

	"go.opentelemetry.io/otel/trace"
)

// Trace is a turn's place in a trace (W3C Trace Context); the zero value is none. It comes only from the client's traceparent and tracestate (package
// request), and engines get only what was parsed from them. Baggage is free text and is not forwarded.
type Trace struct {
	// Context is the turn's span. If turns are not traced, it is the client's context, which is remote and is passed on unchanged.
	Context trace.SpanContext
	Parent  trace.SpanID // of the turn's span: the client's, zero if it sent no context
}

// Sample decides whether a turn's spans are kept. client is the client's context, or a new trace id without a span.
type Sample func(client trace.SpanContext) bool

// Recorded reports whether the turn's spans are kept.
func (t *Trace) Recorded() bool { return t.Context.IsSampled() && !t.Context.IsRemote() }

// Shown returns the trace's id in hexadecimal, "" if no spans are kept: nothing could be found under the id.
func (t *Trace) Shown() string {
	if !t.Recorded() {
		return ""
	}
	return t.Context.TraceID().String()
}

// NewSpanID returns a random span id.
func NewSpanID() (id trace.SpanID) {
	_, _ = rand.Read(id[:]) // never fails since Go 1.24
	return id
}
