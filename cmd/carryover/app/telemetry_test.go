package app

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"carryover/cmd/carryover/config"
	"carryover/server/record"
)

// telemetryOf reads variables as the program does.
func telemetryOf(t *testing.T, env ...string) *tracesConfig {
	t.Helper()
	cfg, err := LoadTelemetry(config.Environment(env))
	if err != nil {
		t.Fatalf("%q: %v", env, err)
	}
	return cfg.traces
}

func TestTelemetry_IsOnWhenACollectorOrTheExporterIsNamed(t *testing.T) {
	for _, tc := range []struct {
		env      []string
		endpoint string // "" if nothing is exported
		grpc     bool
	}{
		{nil, "", false},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT="}, "", false},
		{[]string{"OTEL_SERVICE_NAME=x", "OTEL_TRACES_SAMPLER=always_on"}, "", false},
		{[]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://c:4318/m"}, "", false},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318"}, "http://c:4318/v1/traces", false},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=https://c/otlp/"}, "https://c/otlp/v1/traces", false},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://d:1/x"}, "http://d:1/x", false},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, "http://c:4317", true},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:1", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf"}, "http://c:1/v1/traces", false},
		{[]string{"OTEL_TRACES_EXPORTER=otlp"}, "http://localhost:4318/v1/traces", false},
		{[]string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, "http://localhost:4317", true},
		{[]string{"OTEL_TRACES_EXPORTER=none", "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318"}, "", false},
		{[]string{"OTEL_SDK_DISABLED=TRUE", "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318"}, "", false},
		{[]string{"OTEL_SDK_DISABLED=false", "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318"}, "http://c:4318/v1/traces", false},
	} {
		cfg := telemetryOf(t, tc.env...)
		switch {
		case cfg == nil && tc.endpoint != "", cfg != nil && tc.endpoint == "":
			t.Errorf("%q: got %+v, want %q", tc.env, cfg, tc.endpoint)
		case cfg != nil && (cfg.export.endpoint.String() != tc.endpoint || cfg.export.grpc != tc.grpc):
			t.Errorf("%q: got %s, gRPC %v; want %s, %v", tc.env, cfg.export.endpoint, cfg.export.grpc, tc.endpoint, tc.grpc)
		}
	}
}

// A share of traces is the same one that the SDK takes, and a client's flag decides for samplers that are based on it.
func TestTelemetry_SamplesAsTheSDKDoes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, share := range []string{"0", "0.1", "0.5", "0.999", "1"} {
		env := []string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_TRACES_SAMPLER=traceidratio", "OTEL_TRACES_SAMPLER_ARG=" + share}
		ours := telemetryOf(t, env...).sampling
		ratio := map[string]float64{"0": 0, "0.1": 0.1, "0.5": 0.5, "0.999": 0.999, "1": 1}[share]
		theirs := sdktrace.TraceIDRatioBased(ratio)
		for range 2000 {
			var client record.Trace
			binary.BigEndian.PutUint64(client.ID[:], random.Uint64())
			binary.BigEndian.PutUint64(client.ID[8:], random.Uint64())
			want := theirs.ShouldSample(sdktrace.SamplingParameters{ParentContext: t.Context(), TraceID: client.ID}).Decision == sdktrace.RecordAndSample
			if got := ours.sample(client); got != want {
				t.Fatalf("%s of %x: got %v, want %v", share, client.ID, got, want)
			}
		}
	}
	sent := func(sampled bool) record.Trace {
		return record.Trace{ID: [16]byte{1}, Parent: [8]byte{1}, Sampled: sampled}
	}
	for name, want := range map[string]struct{ none, yes, no bool }{
		"": {true, true, false}, "always_on": {true, true, true}, "always_off": {}, "parentbased_always_on": {true, true, false},
		"parentbased_always_off": {false, true, false}, "parentbased_traceidratio": {true, true, false},
	} {
		s := telemetryOf(t, "OTEL_TRACES_EXPORTER=otlp", "OTEL_TRACES_SAMPLER="+name).sampling
		if none, yes, no := s.sample(record.Trace{ID: [16]byte{1}}), s.sample(sent(true)), s.sample(sent(false)); none != want.none || yes != want.yes || no != want.no {
			t.Errorf("%s: got %v without a client's context, %v and %v with one; want %+v", name, none, yes, no, want)
		}
	}
}

func TestTelemetry_ASharesArgumentIsANumberFromZeroToOne(t *testing.T) {
	for _, arg := range []string{"1.5", "-0.1", "NaN", "half"} {
		_, err := LoadTelemetry(config.Environment([]string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_TRACES_SAMPLER=traceidratio", "OTEL_TRACES_SAMPLER_ARG=" + arg}))
		if want := `OTEL_TRACES_SAMPLER_ARG: "` + arg + `" (environment): want a number from 0 to 1`; err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", arg, err, want)
		}
	}
}
