package e2e

import (
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"carryover/server"
	"carryover/server/telemetry"
)

// recording is a meter that keeps what each instrument is for, by its name.
type recording struct {
	noop.MeterProvider

	units, means map[string]string
}

func (r *recording) Meter(string, ...metric.MeterOption) metric.Meter { return &instruments{of: r} }

type instruments struct {
	noop.Meter

	of *recording
}

func (r *instruments) keep(name string, c interface {
	Unit() string
	Description() string
}) {
	r.of.units[name], r.of.means[name] = c.Unit(), c.Description()
}

func (r *instruments) Int64Counter(name string, options ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	r.keep(name, metric.NewInt64CounterConfig(options...))
	return r.Meter.Int64Counter(name)
}

func (r *instruments) Float64Counter(name string, options ...metric.Float64CounterOption) (metric.Float64Counter, error) {
	r.keep(name, metric.NewFloat64CounterConfig(options...))
	return r.Meter.Float64Counter(name)
}

func (r *instruments) Int64Histogram(name string, options ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	r.keep(name, metric.NewInt64HistogramConfig(options...))
	return r.Meter.Int64Histogram(name)
}

func (r *instruments) Float64Histogram(name string, options ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	r.keep(name, metric.NewFloat64HistogramConfig(options...))
	return r.Meter.Float64Histogram(name)
}

func (r *instruments) Int64ObservableGauge(name string, options ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	r.keep(name, metric.NewInt64ObservableGaugeConfig(options...))
	return r.Meter.Int64ObservableGauge(name)
}

func (r *instruments) Float64ObservableGauge(name string, options ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	r.keep(name, metric.NewFloat64ObservableGaugeConfig(options...))
	return r.Meter.Float64ObservableGauge(name)
}

func (r *instruments) Int64ObservableCounter(name string, options ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	r.keep(name, metric.NewInt64ObservableCounterConfig(options...))
	return r.Meter.Int64ObservableCounter(name)
}

func (r *instruments) Int64ObservableUpDownCounter(name string, options ...metric.Int64ObservableUpDownCounterOption) (metric.Int64ObservableUpDownCounter, error) {
	r.keep(name, metric.NewInt64ObservableUpDownCounterConfig(options...))
	return r.Meter.Int64ObservableUpDownCounter(name)
}

// recordedMetrics returns what each family of /metrics is for, by its name there.
func recordedMetrics(t *testing.T) map[string]string {
	t.Helper()
	r := &recording{units: map[string]string{}, means: map[string]string{}}
	m, err := telemetry.NewMetrics(r)
	noError(t, err)
	if err := m.Watch(telemetry.State{
		Store: m.Store(nil), Server: func() *server.Server { return nil }, Redis: func() string { return "" },
	}); err != nil {
		t.Fatal(err)
	}
	means := map[string]string{}
	for name, unit := range r.units {
		family := strings.ReplaceAll(name, ".", "_") + map[string]string{"s": "_seconds", "By": "_bytes"}[unit]
		if unit == "1" {
			family += "_ratio"
		}
		means[family], means[family+"_total"] = r.means[name], r.means[name]
	}
	return means
}

func referenceMetrics(t *testing.T, b *strings.Builder) {
	t.Helper()
	b.WriteString("## Metrics\n\n`GET /metrics` at the listener for operators also has the metrics of Go and of the process (`go_…`, `process_…`). No label has data of a client.\n" +
		"[Monitoring](monitoring.md#metrics) says how to scrape them, and what labels mean.\n\n" +
		"| metric | kind | labels | |\n|---|---|---|---|\n")
	means := recordedMetrics(t)
	for _, f := range listedFamilies(t) {
		what, found := means[f.name]
		if !found || what == "" {
			t.Errorf("no instrument says what %s is for", f.name)
		}
		labels := ""
		if f.labels != "-" {
			labels = "`" + strings.ReplaceAll(f.labels, ",", "`, `") + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s%s |\n", f.name, f.kind, labels, cell(what), map[string]string{"redis": " Only with Redis."}[f.appears])
	}
}
