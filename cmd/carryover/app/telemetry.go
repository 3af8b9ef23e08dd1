package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config"
	"carryover/server/telemetry"
)

type telemetryConfig struct {
	traces, metrics string // protocol of the signal, "" for no export
	resource        *resource.Resource
}

// LoadTelemetry reads the standard variables that turn exports on; without them nothing is exported. The SDK reads the others. Package
// autoexport of contrib 0.72 makes exporters that follow redirects. The error is a UsageError that joins all faults.
func LoadTelemetry() (telemetryConfig, error) {
	if _, disabled := variable("OTEL_SDK_DISABLED"); strings.EqualFold(disabled, "true") {
		return telemetryConfig{}, nil
	}
	traces, noTraces := protocol("TRACES", "otlp", "none")
	metrics, noMetrics := protocol("METRICS", "otlp", "none", "prometheus") // /metrics is always there
	// All signals need the same instance id.
	made, err := resource.New(context.Background(), resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "carryover"), attribute.String("service.version", command.Version),
		attribute.String("service.instance.id", rand.Text()),
	), resource.WithFromEnv())
	if err != nil {
		err = fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	if err = errors.Join(noTraces, noMetrics, err); err != nil {
		return telemetryConfig{}, &command.UsageError{Err: err}
	}
	return telemetryConfig{traces, metrics, made}, nil
}

// Load returns the configurations of the program and of its telemetry. Its error has the faults of both.
func Load(l *config.Loader, env map[string]string, flags *config.Flags) (config.Config, telemetryConfig, error) {
	cfg, err := l.Load(env, flags)
	telemetry, also := LoadTelemetry()
	return cfg, telemetry, errors.Join(err, also)
}

// variable returns the first variable with a value. The specification counts an empty one as unset.
func variable(names ...string) (name, value string) {
	for _, name = range names {
		if value = strings.TrimSpace(os.Getenv(name)); value != "" {
			break
		}
	}
	return name, value
}

const overGRPC = "grpc"

// protocol returns the protocol of a signal's export, "" if there is none: the exporter is otlp, or a collector is named and no exporter.
func protocol(signal string, exporters ...string) (string, error) {
	name, exporter := variable("OTEL_" + signal + "_EXPORTER")
	if _, endpoint := variable("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"); exporter == "" && endpoint != "" {
		exporter = "otlp"
	}
	named := strings.FieldsFunc(exporter, func(c rune) bool { return c == ',' || c == ' ' })
	for _, one := range named {
		if !slices.Contains(exporters, one) {
			return "", refused(name, exporter, exporters)
		}
	}
	if !slices.Contains(named, "otlp") {
		return "", nil
	}
	name, said := variable("OTEL_EXPORTER_OTLP_"+signal+"_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
	if known := []string{"http/protobuf", overGRPC}; said != "" && !slices.Contains(known, said) {
		return "", refused(name, said, known)
	}
	return cmp.Or(said, "http/protobuf"), nil
}

func refused(name, value string, oneOf []string) error {
	return config.Fault{Key: name, Value: config.Quoted(value), Origin: "environment", Want: config.Choice(oneOf)}
}

// withoutRedirects is an exporter's Proxy function. It refuses redirects, which would carry credentials elsewhere.
func withoutRedirects(r *http.Request) (*url.URL, error) {
	if r.Response != nil {
		return nil, errors.New("a redirect is not followed")
	}
	return http.ProxyFromEnvironment(r)
}

const exportErrorEvery = time.Minute

// MaxExportError bounds the logged text, which may contain the collector's answer.
const MaxExportError = 300

// exportErrors logs export failures, which repeat while a collector is away.
type exportErrors struct {
	logger *slog.Logger
	mu     sync.Mutex // guards the rest
	last   time.Time
	unsaid int
}

func (e *exportErrors) Handle(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now := time.Now(); e.last.IsZero() || now.Sub(e.last) >= exportErrorEvery {
		said := err.Error()
		said = strings.ToValidUTF8(said[:min(len(said), MaxExportError)], "")
		e.logger.Warn("telemetry is not exported", "error", said, "unsaid", e.unsaid)
		e.last, e.unsaid = now, 0
		return
	}
	e.unsaid++
}

// withoutValues drops the attributes of the SDK's records: values of variables, which may be credentials.
type withoutValues struct{ slog.Handler }

func (w withoutValues) Handle(ctx context.Context, r slog.Record) error {
	return w.Handler.Handle(ctx, slog.NewRecord(r.Time, r.Level, "OpenTelemetry: "+r.Message, r.PC))
}

// logSDK is global, because the SDK has no other settings.
func logSDK(logger *slog.Logger) {
	otel.SetErrorHandler(&exportErrors{logger: logger})
	otel.SetLogger(logr.FromSlogHandler(withoutValues{logger.Handler()}))
}

type tracing struct {
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

// openTracing does not connect before there are spans.
func openTracing(cfg telemetryConfig, logger *slog.Logger) (*tracing, error) {
	t := &tracing{logger: logger}
	var err error
	if t.exporter, err = newSpanExporter(cfg.traces); err != nil {
		return nil, fmt.Errorf("export traces: %w", err)
	}
	t.provider = sdktrace.NewTracerProvider(sdktrace.WithResource(cfg.resource), sdktrace.WithIDGenerator(telemetry.PresetIDs{}), sdktrace.WithBatcher(t.exporter))
	return t, nil
}

func (t *tracing) tracer() trace.Tracer {
	return t.provider.Tracer("carryover/server/telemetry", trace.WithInstrumentationVersion(command.Version))
}

// FlushLimit bounds how long the end of the program waits for the collector.
const FlushLimit = 5 * time.Second

func (t *tracing) close() {
	ctx, cancel := context.WithTimeout(context.Background(), FlushLimit)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.logger.Warn("spans of the last turns are lost", "error", err)
	}
	_ = t.exporter.Shutdown(ctx) // cancels a request that still runs
}
