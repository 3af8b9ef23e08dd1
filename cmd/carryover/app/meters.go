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

	"carryover/cmd/carryover/command"
	"carryover/server"
	"carryover/server/telemetry"
)

type meters struct {
	*telemetry.Metrics
	provider *sdkmetric.MeterProvider
	Scraped  http.Handler // answers GET /metrics
	running  atomic.Bool  // the server exists; before, exports have none of its metrics
	end      func()
}

// MetricsEndLimit is how long the last export may delay the end of the program.
const MetricsEndLimit = time.Second

// maxScrapes bounds scrapes at once; each holds all metrics in memory.
const maxScrapes = 4

// newMeters has a registry of its own, so that no library adds metrics.
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
		sdkmetric.WithCardinalityLimit(0), // package telemetry bounds its labels, by more than the SDK's 2,000
	}
	if cfg.metrics != "" {
		push, err := newMetricExporter(cfg.metrics)
		if err != nil {
			return nil, fmt.Errorf("export metrics: %w", err)
		}
		options = append(options, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(push)))
	}
	m := &meters{provider: sdkmetric.NewMeterProvider(options...)}
	m.Scraped = promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxScrapes})
	m.end = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), MetricsEndLimit)
		defer cancel()
		_ = m.provider.Shutdown(ctx) // an absent collector is no fault of the program
	})
	if m.Metrics, err = telemetry.NewMetrics(m.provider); err != nil {
		m.end()
		return nil, err
	}
	return m, nil
}

func newMetricExporter(protocol string) (sdkmetric.Exporter, error) {
	if protocol == overGRPC {
		return otlpmetricgrpc.New(context.Background())
	}
	return otlpmetrichttp.New(context.Background(), otlpmetrichttp.WithProxy(withoutRedirects))
}

func (p *Proxy) measure(cfg telemetryConfig, deps *server.Deps, logger *slog.Logger) (err error) {
	if cfg.traces != "" || cfg.metrics != "" {
		logSDK(logger)
		logger.Info("exporting by OTLP", "traces", cfg.traces, "metrics", cfg.metrics)
	}
	if p.Telemetry.Meters, err = newMeters(cfg); err != nil {
		return err
	}
	store := p.Telemetry.Meters.Store(deps.Store)
	deps.Store, deps.Observers = store, append(deps.Observers, p.Telemetry.Meters.Observe)
	return p.Telemetry.Meters.Watch(telemetry.State{
		Fleet: p.Fleet, Store: store, Redis: deps.RedisState, Version: command.Version,
		Server: func() *server.Server {
			if p.Telemetry.Meters.running.Load() {
				return p.Server
			}
			return nil
		},
	})
}
