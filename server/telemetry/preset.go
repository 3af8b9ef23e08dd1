package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/trace"
)

// presetKey is the context key of the ids for the next span.
type presetKey struct{}

type presetIDs struct {
	trace trace.TraceID
	span  trace.SpanID
}

// preset returns a context under which the next span gets these ids.
func preset(ctx context.Context, id [16]byte, span [8]byte) context.Context {
	return context.WithValue(ctx, presetKey{}, presetIDs{id, span})
}

// Preset returns the ids for a span that is started under ctx, zeros if any ids will do. The SDK's generator of ids calls it:
// OpenTelemetry's API gives a span its id when it is started, and by then our ids have already been sent to engines.
func Preset(ctx context.Context) (trace.TraceID, trace.SpanID) {
	ids, _ := ctx.Value(presetKey{}).(presetIDs)
	return ids.trace, ids.span
}
