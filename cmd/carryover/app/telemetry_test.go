package app

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"carryover/server/record"
	"carryover/server/telemetry"
)

// setVariables sets variables of the process, "A=1 B=2".
func setVariables(t *testing.T, env string) {
	t.Helper()
	for _, variable := range strings.Fields(env) {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
}

func TestTelemetry_IsOnWhenACollectorOrTheExporterIsNamed(t *testing.T) {
	const overHTTP = "http/protobuf"
	for env, want := range map[string]struct{ traces, metrics, fault string }{
		"":                             {},
		"OTEL_EXPORTER_OTLP_ENDPOINT=": {},
		"OTEL_SERVICE_NAME=x OTEL_TRACES_SAMPLER=always_on":                                                                        {},
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://c:4318/m":                                                                      {metrics: overHTTP},
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://c:4318/v1/traces":                                                               {traces: overHTTP},
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318":                                                                                {traces: overHTTP, metrics: overHTTP},
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4317 OTEL_EXPORTER_OTLP_PROTOCOL=grpc":                                               {traces: overGRPC, metrics: overGRPC},
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:1 OTEL_EXPORTER_OTLP_PROTOCOL=grpc OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf": {traces: overHTTP, metrics: overGRPC},
		"OTEL_TRACES_EXPORTER=otlp":                                                                                                {traces: overHTTP},
		"OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_PROTOCOL=grpc":                                                               {traces: overGRPC},
		"OTEL_TRACES_EXPORTER=none OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318":                                                      {metrics: overHTTP},
		"OTEL_METRICS_EXPORTER=otlp":                                                                                               {metrics: overHTTP},
		"OTEL_METRICS_EXPORTER=none OTEL_EXPORTER_OTLP_ENDPOINT=http://c:1":                                                        {traces: overHTTP},
		"OTEL_METRICS_EXPORTER=prometheus OTEL_EXPORTER_OTLP_ENDPOINT=http://c:1":                                                  {traces: overHTTP},
		"OTEL_METRICS_EXPORTER=prometheus,otlp":                                                                                    {metrics: overHTTP},
		"OTEL_SDK_DISABLED=TRUE OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318":                                                         {},
		"OTEL_SDK_DISABLED=true OTEL_METRICS_EXPORTER=otlp":                                                                        {},
		"OTEL_SDK_DISABLED=false OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318":                                                        {traces: overHTTP, metrics: overHTTP},
		"OTEL_METRICS_EXPORTER=console":                                                                                            {fault: `OTEL_METRICS_EXPORTER: "console" (environment): want one of otlp, none, prometheus`},
		"OTEL_METRICS_EXPORTER=otlp OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=http/json":                                                 {fault: `OTEL_EXPORTER_OTLP_METRICS_PROTOCOL: "http/json" (environment): want one of http/protobuf, grpc`},
	} {
		t.Run(env, func(t *testing.T) {
			setVariables(t, env)
			cfg, err := LoadTelemetry()
			fault := ""
			if err != nil {
				fault = err.Error()
			}
			if cfg.traces != want.traces || cfg.metrics != want.metrics || fault != want.fault {
				t.Errorf("got traces %q, metrics %q, %q; want %+v", cfg.traces, cfg.metrics, fault, want)
			}
		})
	}
}

// sampler opens tracing by a sampler of the SDK, and returns what decides for turns, and the log.
func sampler(t *testing.T, name, arg string) (record.Sample, *bytes.Buffer) {
	t.Helper()
	setVariables(t, "OTEL_TRACES_EXPORTER=otlp OTEL_TRACES_SAMPLER="+name+" OTEL_TRACES_SAMPLER_ARG="+arg)
	cfg, err := LoadTelemetry()
	must(t, err)
	log := &bytes.Buffer{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	logSDK(logger)
	opened, err := openTracing(cfg, logger)
	must(t, err)
	t.Cleanup(opened.close)
	return telemetry.Sample(opened.tracer()), log
}

// A share of traces is the same one that the SDK takes, and a client's flag decides for samplers that are based on it.
func TestTelemetry_SamplesAsTheSDKDoes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, share := range []string{"0", "0.1", "0.5", "0.999", "1"} {
		ours, _ := sampler(t, "traceidratio", share)
		ratio := map[string]float64{"0": 0, "0.1": 0.1, "0.5": 0.5, "0.999": 0.999, "1": 1}[share]
		theirs := sdktrace.TraceIDRatioBased(ratio)
		for range 2000 {
			var id trace.TraceID
			binary.BigEndian.PutUint64(id[:], random.Uint64())
			binary.BigEndian.PutUint64(id[8:], random.Uint64())
			want := theirs.ShouldSample(sdktrace.SamplingParameters{ParentContext: t.Context(), TraceID: id}).Decision == sdktrace.RecordAndSample
			if got := ours(trace.SpanContext{}.WithTraceID(id)); got != want {
				t.Fatalf("%s of %x: got %v, want %v", share, id, got, want)
			}
		}
	}
	fresh := trace.SpanContext{}.WithTraceID(trace.TraceID{1})
	sent := func(sampled bool) trace.SpanContext {
		return fresh.WithSpanID(trace.SpanID{1}).WithTraceFlags(trace.TraceFlags(0).WithSampled(sampled)).WithRemote(true)
	}
	for name, want := range map[string]struct{ none, yes, no bool }{
		"": {true, true, false}, "always_on": {true, true, true}, "always_off": {}, "parentbased_always_on": {true, true, false},
		"parentbased_always_off": {false, true, false}, "parentbased_traceidratio": {true, true, false},
	} {
		sample, _ := sampler(t, name, "")
		if none, yes, no := sample(fresh), sample(sent(true)), sample(sent(false)); none != want.none || yes != want.yes || no != want.no {
			t.Errorf("%s: got %v without a client's context, %v and %v with one; want %+v", name, none, yes, no, want)
		}
	}
}

func TestTelemetry_TheLogHasWhatTheSDKCannotUse(t *testing.T) {
	for _, tc := range []struct{ env, sampler, want string }{
		{"", "sometimes", "unsupported sampler: sometimes"},
		{"", "traceidratio", "invalid trace ID ratio: greater than 1.0"},
		{"OTEL_EXPORTER_OTLP_TIMEOUT=10s", "", "OpenTelemetry: parse duration"},
		{"OTEL_EXPORTER_OTLP_CERTIFICATE=/none.pem", "", "OpenTelemetry: read tls ca cert file"},
		{"OTEL_EXPORTER_OTLP_HEADERS=secret", "", "OpenTelemetry: parse headers"},
		{"OTEL_EXPORTER_OTLP_HEADERS=a=secret%zz", "", "OpenTelemetry: escape header value"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://user:secret@c:port", "", "OpenTelemetry: parse url"},
	} {
		t.Run(tc.want, func(t *testing.T) {
			setVariables(t, tc.env)
			_, log := sampler(t, tc.sampler, "1.5")
			if said := log.String(); !strings.Contains(said, tc.want) || strings.Contains(said, "secret") {
				t.Errorf("got %q, want %s", said, tc.want)
			}
		})
	}
}
