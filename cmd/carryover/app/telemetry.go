package app

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"

	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config"
)

// telemetryConfig is the content of OpenTelemetry's standard variables. The zero value exports nothing. The variables are read here and
// passed to the SDK's exporters as options: the exporters would read the environment themselves and report no unreadable value. The package
// go.opentelemetry.io/contrib/exporters/autoexport 0.72 would do so too, with eight more modules and 0.6 MB more in a binary of 34 MB.
type telemetryConfig struct {
	traces   *tracesConfig  // nil if none are exported
	metrics  *metricsConfig // nil if none are sent
	resource *resource.Resource
}

// LoadTelemetry reads the variables. Its error is a UsageError that joins all faults.
func LoadTelemetry(env map[string]string) (telemetryConfig, error) {
	r := &otelReader{env: env}
	var cfg telemetryConfig
	if !r.truth("OTEL_SDK_DISABLED") {
		cfg.traces, cfg.metrics = r.traces(), r.metrics()
		cfg.resource = r.resource()
	}
	if len(r.faults) > 0 {
		return telemetryConfig{}, &command.UsageError{Err: errors.Join(r.faults...)}
	}
	return cfg, nil
}

// Load returns the configuration of the program and of its telemetry. Its error names the faults of both.
func Load(l *config.Loader, env map[string]string, flags *config.Flags) (config.Config, telemetryConfig, error) {
	cfg, err := l.Load(env, flags)
	telemetry, also := LoadTelemetry(env)
	return cfg, telemetry, errors.Join(err, also)
}

// resource is what the program says of itself in all that it exports. It is made once, so that everything has the same instance id.
func (r *otelReader) resource() *resource.Resource {
	attrs := map[string]string{"service.name": "carryover", "service.version": command.Version, "service.instance.id": randomName()}
	maps.Copy(attrs, r.pairs("OTEL_RESOURCE_ATTRIBUTES", true))
	if name := r.get("OTEL_SERVICE_NAME"); name != "" {
		attrs["service.name"] = name
	}
	var all []attribute.KeyValue
	for _, key := range slices.Sorted(maps.Keys(attrs)) {
		all = append(all, attribute.String(key, attrs[key]))
	}
	made, err := resource.New(context.Background(), resource.WithTelemetrySDK(), resource.WithAttributes(all...))
	if err != nil { // nothing of these detects anything
		return resource.NewSchemaless(all...)
	}
	return made
}

// exportErrorEvery is the least time between two log lines about failures of exporters.
const exportErrorEvery = time.Minute

// MaxExportError bounds the logged text of a failure, because it may contain the collector's answer.
const MaxExportError = 300

// exportErrors logs failures of the SDK and of its exporters, which go on for as long as a collector is away.
type exportErrors struct {
	logger *slog.Logger
	mu     sync.Mutex // guards the rest
	last   time.Time
	unsaid int
}

// Handle implements otel.ErrorHandler.
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

// handleExportErrors makes the SDK report errors to the log. The setting is global, because the SDK has no other.
func handleExportErrors(logger *slog.Logger) { otel.SetErrorHandler(&exportErrors{logger: logger}) }
