package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/credentials"

	"carryover/cmd/carryover/command"
	"carryover/server/record"
	"carryover/server/telemetry"
)

// tracesConfig says which turns are traced, and how their spans are exported.
type tracesConfig struct {
	export   exporterConfig
	sampling sampling
	batch    batching
}

// batching bounds the spans that wait for the collector. More spans are dropped.
type batching struct {
	queue, most    int
	delay, timeout time.Duration
}

// traces reads what concerns traces, nil if none are exported.
func (r *otelReader) traces() *tracesConfig {
	if !r.exports("TRACES") {
		return nil
	}
	cfg := &tracesConfig{export: r.exporter("TRACES", "v1/traces"), sampling: r.sampling()}
	cfg.batch = batching{
		queue: r.number("OTEL_BSP_MAX_QUEUE_SIZE", sdktrace.DefaultMaxQueueSize),
		delay: r.milliseconds("OTEL_BSP_SCHEDULE_DELAY", sdktrace.DefaultScheduleDelay*time.Millisecond),
		// The SDK's own 30 s are for exporters that retry for longer.
		timeout: r.milliseconds("OTEL_BSP_EXPORT_TIMEOUT", sdktrace.DefaultExportTimeout*time.Millisecond),
	}
	cfg.batch.most = r.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", min(sdktrace.DefaultMaxExportBatchSize, cfg.batch.queue))
	if cfg.batch.most > cfg.batch.queue {
		r.refuse("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "at most OTEL_BSP_MAX_QUEUE_SIZE, "+strconv.Itoa(cfg.batch.queue), false)
	}
	return cfg
}

// sampling decides which turns are traced. It is not a sampler of the SDK, because every turn runs it.
type sampling struct {
	heedsClient bool   // the flag of a client that has sent a context decides
	below       uint64 // else a trace whose last 63 bits are below this
}

// sample implements record.Sample. A share is taken by the same bits as by the SDK's TraceIDRatioBased, so that services with one
// share agree.
func (s sampling) sample(client record.Trace) bool {
	if s.heedsClient && client.Parent != [8]byte{} {
		return client.Sampled
	}
	return binary.BigEndian.Uint64(client.ID[8:])>>1 < s.below
}

func (r *otelReader) sampling() sampling {
	const all = 1 << 63
	name := cmp.Or(r.word("OTEL_TRACES_SAMPLER", "always_on", "always_off", "traceidratio",
		"parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio"), "parentbased_always_on")
	share := 1.0
	if arg := r.get("OTEL_TRACES_SAMPLER_ARG"); arg != "" && (name == "traceidratio" || name == "parentbased_traceidratio") {
		var err error
		if share, err = strconv.ParseFloat(arg, 64); err != nil || !(share >= 0 && share <= 1) {
			r.refuse("OTEL_TRACES_SAMPLER_ARG", "a number from 0 to 1", false)
			share = 1
		}
	}
	s := sampling{heedsClient: name[0] == 'p', below: uint64(share * all)}
	if name == "always_off" || name == "parentbased_always_off" {
		s.below = 0
	}
	return s
}

// tracing exports the spans of turns.
type tracing struct {
	sample   record.Sample
	observer record.Observer
	provider *sdktrace.TracerProvider
	exporter *otlptrace.Exporter
	client   *http.Client
	logger   *slog.Logger
}

// openTracing makes the exporter of spans. It connects to no collector before there are spans.
func openTracing(cfg telemetryConfig, logger *slog.Logger) (*tracing, error) {
	c := cfg.traces
	t := &tracing{sample: c.sampling.sample, client: c.export.client(), logger: logger}
	var err error
	if t.exporter, err = otlptrace.New(context.Background(), c.export.traces(t.client)); err != nil {
		return nil, fmt.Errorf("export traces: %w", err)
	}
	handleExportErrors(logger)
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithResource(cfg.resource), sdktrace.WithIDGenerator(presetIDs{}),
		sdktrace.WithSampler(sdktrace.AlwaysSample()), // the server has decided by then
		sdktrace.WithSpanProcessor(sdktrace.NewBatchSpanProcessor(t.exporter, sdktrace.WithMaxQueueSize(c.batch.queue),
			sdktrace.WithMaxExportBatchSize(c.batch.most), sdktrace.WithBatchTimeout(c.batch.delay), sdktrace.WithExportTimeout(c.batch.timeout))),
	)
	t.observer = telemetry.Spans(t.provider.Tracer("carryover/server/telemetry", trace.WithInstrumentationVersion(command.Version)))
	logger.Info("exporting traces", "endpoint", c.export.endpoint.String(), "grpc", c.export.grpc)
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
	t.client.CloseIdleConnections()
}

// client sends by HTTP. It follows no redirects, which would carry credentials elsewhere.
func (c *exporterConfig) client() *http.Client {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: c.tls, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true}
	return &http.Client{
		Transport: transport, Timeout: c.timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// traces is the SDK's client for the protocol.
func (c *exporterConfig) traces(client *http.Client) otlptrace.Client {
	if c.grpc {
		options := []otlptracegrpc.Option{
			otlptracegrpc.WithEndpointURL(c.endpoint.String()), otlptracegrpc.WithHeaders(c.headers), otlptracegrpc.WithTimeout(c.timeout),
		}
		if c.gzip {
			options = append(options, otlptracegrpc.WithCompressor("gzip"))
		}
		if c.tls != nil {
			options = append(options, otlptracegrpc.WithTLSCredentials(credentials.NewTLS(c.tls)))
		}
		return otlptracegrpc.NewClient(options...)
	}
	compression := otlptracehttp.NoCompression
	if c.gzip {
		compression = otlptracehttp.GzipCompression
	}
	return otlptracehttp.NewClient(otlptracehttp.WithEndpointURL(c.endpoint.String()), otlptracehttp.WithHeaders(c.headers),
		otlptracehttp.WithTimeout(c.timeout), otlptracehttp.WithCompression(compression), otlptracehttp.WithHTTPClient(client))
}

// presetIDs gives spans the ids under which their legs were sent, and random ones to the others.
type presetIDs struct{}

// NewIDs implements sdktrace.IDGenerator.
func (g presetIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id, span := telemetry.Preset(ctx)
	if !id.IsValid() {
		_, _ = rand.Read(id[:]) // never fails since Go 1.24
	}
	return id, g.or(span)
}

// NewSpanID implements sdktrace.IDGenerator.
func (g presetIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	_, span := telemetry.Preset(ctx)
	return g.or(span)
}

func (presetIDs) or(span trace.SpanID) trace.SpanID {
	if !span.IsValid() {
		_, _ = rand.Read(span[:]) // never fails since Go 1.24
	}
	return span
}
