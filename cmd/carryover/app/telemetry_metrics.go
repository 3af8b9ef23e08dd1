package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/grpc/credentials"

	"carryover/cmd/carryover/command"
	"carryover/server"
	"carryover/server/telemetry"
)

// meters are the destinations of metrics: always scrapers of /metrics, and over OTLP the collector that the environment names.
type meters struct {
	*telemetry.Metrics
	provider *sdkmetric.MeterProvider
	Scraped  http.Handler // answers GET /metrics
	running  atomic.Bool  // the server is made; before, exports have nothing of it
	end      func()
}

// MetricsEndLimit is how long the last export may delay the end of the program.
const MetricsEndLimit = time.Second

// maxScrapes bounds the scrapes at a time; each has the metrics once in memory.
const maxScrapes = 4

// metricsConfig says where metrics are sent to, besides being scraped.
type metricsConfig struct {
	export        exporterConfig
	every, within time.Duration
}

// metrics reads what concerns metrics, nil if none are sent.
func (r *otelReader) metrics() *metricsConfig {
	if !r.exports("METRICS", "prometheus") { // which they always are
		return nil
	}
	return &metricsConfig{
		export: r.exporter("METRICS", "v1/metrics"),
		every:  r.milliseconds("OTEL_METRIC_EXPORT_INTERVAL", time.Minute),
		within: r.milliseconds("OTEL_METRIC_EXPORT_TIMEOUT", 30*time.Second),
	}
}

// newMeters makes the metrics. The registry is our own: nothing that a library adds to the default one is served.
func newMeters(cfg telemetryConfig) (*meters, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(),
		otelprometheus.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes))
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	options := []sdkmetric.Option{
		sdkmetric.WithReader(exporter), sdkmetric.WithResource(cfg.resource),
		sdkmetric.WithCardinalityLimit(0), // package telemetry bounds its labels, by more than the 2,000 of the SDK
	}
	var client *http.Client // nil if nothing is sent
	if c := cfg.metrics; c != nil {
		client = c.export.client()
		push, err := c.export.metrics(client)
		if err != nil {
			return nil, fmt.Errorf("export metrics: %w", err)
		}
		options = append(options, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(push, sdkmetric.WithInterval(c.every), sdkmetric.WithTimeout(c.within))))
	}
	m := &meters{provider: sdkmetric.NewMeterProvider(options...)}
	m.Scraped = promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxScrapes})
	m.end = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), MetricsEndLimit)
		defer cancel()
		_ = m.provider.Shutdown(ctx) // a collector that is not there is no fault of the program
		if client != nil {
			client.CloseIdleConnections()
		}
	})
	if m.Metrics, err = telemetry.NewMetrics(m.provider); err != nil {
		m.end()
		return nil, err
	}
	return m, nil
}

// metrics is the SDK's exporter for the protocol.
func (c *exporterConfig) metrics(client *http.Client) (sdkmetric.Exporter, error) {
	if c.grpc {
		options := []otlpmetricgrpc.Option{
			otlpmetricgrpc.WithEndpointURL(c.endpoint.String()), otlpmetricgrpc.WithHeaders(c.headers), otlpmetricgrpc.WithTimeout(c.timeout),
		}
		if c.gzip {
			options = append(options, otlpmetricgrpc.WithCompressor("gzip"))
		}
		if c.tls != nil {
			options = append(options, otlpmetricgrpc.WithTLSCredentials(credentials.NewTLS(c.tls)))
		}
		return otlpmetricgrpc.New(context.Background(), options...)
	}
	compression := otlpmetrichttp.NoCompression
	if c.gzip {
		compression = otlpmetrichttp.GzipCompression
	}
	return otlpmetrichttp.New(context.Background(), otlpmetrichttp.WithEndpointURL(c.endpoint.String()), otlpmetrichttp.WithHeaders(c.headers),
		otlpmetrichttp.WithTimeout(c.timeout), otlpmetrichttp.WithCompression(compression), otlpmetrichttp.WithHTTPClient(client))
}

// measure measures turns, operations of the store and the state of the program.
func (p *Proxy) measure(cfg telemetryConfig, deps *server.Deps, logger *slog.Logger) (err error) {
	if c := cfg.metrics; c != nil {
		handleExportErrors(logger)
		logger.Info("exporting metrics", "endpoint", c.export.endpoint.String(), "grpc", c.export.grpc, "every", c.every)
	}
	if p.Telemetry.Meters, err = newMeters(cfg); err != nil {
		return err
	}
	store := p.Telemetry.Meters.Store(deps.Store)
	deps.Store, deps.Observers = store, append(deps.Observers, p.Telemetry.Meters.Observe)
	return p.Telemetry.Meters.Watch(telemetry.State{
		Fleet: p.Fleet, Store: store, Redis: deps.RedisState, Version: command.Version,
		Server: func() telemetry.Server {
			if p.Telemetry.Meters.running.Load() {
				return p.Server
			}
			return nil
		},
	})
}
