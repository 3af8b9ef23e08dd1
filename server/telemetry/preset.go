package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/trace"
)

// presetKey finds the ids of the span that is to be started.
type presetKey struct{}

type presetIDs struct {
	trace trace.TraceID
	span  trace.SpanID
}

// preset has the next span that is started under the context get these ids.
func preset(ctx context.Context, id [16]byte, span [8]byte) context.Context {
	return context.WithValue(ctx, presetKey{}, presetIDs{id, span})
}

// Preset returns the ids that a span gets which is started under ctx, zero for any. It is for the SDK's generator of ids: OpenTelemetry's
// API gives a span its id when it is started, and ours were sent to engines by then.
func Preset(ctx context.Context) (trace.TraceID, trace.SpanID) {
	ids, _ := ctx.Value(presetKey{}).(presetIDs)
	return ids.trace, ids.span
}
