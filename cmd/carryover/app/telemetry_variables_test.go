package app

import (
	"strings"
	"testing"

	"carryover/cmd/carryover/config"
)

func TestMetrics_AreSentAsTheEnvironmentWants(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "",
		"OTEL_METRICS_EXPORTER=otlp": "http://localhost:4318/v1/metrics",
		"OTEL_METRICS_EXPORTER=none OTEL_EXPORTER_OTLP_ENDPOINT=http://c:1":                 "",
		"OTEL_METRICS_EXPORTER=prometheus OTEL_EXPORTER_OTLP_ENDPOINT=http://c:1":           "",
		"OTEL_METRICS_EXPORTER=prometheus,otlp":                                             "http://localhost:4318/v1/metrics",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:1":                                            "http://c:1/v1/metrics",
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://c:1/x OTEL_EXPORTER_OTLP_PROTOCOL=grpc": "http://c:1/x",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://c:1/v1/traces":                           "",
		"OTEL_SDK_DISABLED=true OTEL_METRICS_EXPORTER=otlp":                                 "",
		"OTEL_METRICS_EXPORTER=console":                                                     `OTEL_METRICS_EXPORTER: "console" (environment): want one of otlp, none, prometheus`,
		"OTEL_METRICS_EXPORTER=otlp OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=http/json":          `OTEL_EXPORTER_OTLP_METRICS_PROTOCOL: "http/json" (environment): want one of http/protobuf, grpc`,
		"OTEL_METRICS_EXPORTER=otlp OTEL_METRIC_EXPORT_INTERVAL=0":                          `OTEL_METRIC_EXPORT_INTERVAL: "0" (environment): want a whole number from 1 to 3600000`,
	} {
		cfg, err := LoadTelemetry(config.Environment(strings.Fields(text)))
		got := ""
		switch {
		case err != nil:
			got = err.Error()
		case cfg.metrics != nil:
			got = cfg.metrics.export.endpoint.String()
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}
