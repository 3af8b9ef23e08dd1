package app

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"carryover/cmd/carryover/command"
	"carryover/server/record"
	"carryover/server/telemetry"
)

// tracing exports the spans of turns.
type tracing struct {
	sample   record.Sample
	observer record.Observer
	provider *sdktrace.TracerProvider
	exporter *otlptrace.Exporter
	logger   *slog.Logger
}

func newSpanExporter(protocol string) (*otlptrace.Exporter, error) {
	if protocol == overGRPC {
		return otlptracegrpc.New(context.Background())
	}
	return otlptracehttp.New(context.Background(), otlptracehttp.WithProxy(withoutRedirects))
}

// openTracing makes the exporter of spans. It connects to no collector before there are spans.
func openTracing(cfg telemetryConfig, logger *slog.Logger) (*tracing, error) {
	t := &tracing{logger: logger}
	var err error
	if t.exporter, err = newSpanExporter(cfg.traces); err != nil {
		return nil, fmt.Errorf("export traces: %w", err)
	}
	t.provider = sdktrace.NewTracerProvider(sdktrace.WithResource(cfg.resource), sdktrace.WithIDGenerator(telemetry.PresetIDs{}), sdktrace.WithBatcher(t.exporter))
	tracer := t.provider.Tracer("carryover/server/telemetry", trace.WithInstrumentationVersion(command.Version))
	t.sample, t.observer = telemetry.Sample(tracer), telemetry.Spans(tracer)
	return t, nil
}

// FlushLimit bounds how long the end of the program waits for the collector.
const FlushLimit = 5 * time.Second

// close sends the spans that wait, within its limit.
func (t *tracing) close() {
	ctx, cancel := context.WithTimeout(context.Background(), FlushLimit)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.logger.Warn("spans of the last turns are lost", "error", err)
	}
	_ = t.exporter.Shutdown(ctx) // ends a request that goes on; without one it has ended
}
