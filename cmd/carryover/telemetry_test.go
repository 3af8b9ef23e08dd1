package main

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"carryover/server/record"
)

// telemetryOf reads variables as the program does.
func telemetryOf(t *testing.T, env ...string) *tracesConfig {
	t.Helper()
	cfg, err := loadTelemetry(environment(env))
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

func TestTelemetry_BadVariablesAreRefusedAtTheStart(t *testing.T) {
	pem := filepath.Join(t.TempDir(), "no.pem")
	if err := os.WriteFile(pem, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, value, want string }{
		{"OTEL_SDK_DISABLED", "yes", `OTEL_SDK_DISABLED: "yes" (environment): want one of true, false`},
		{"OTEL_TRACES_EXPORTER", "zipkin", `OTEL_TRACES_EXPORTER: "zipkin" (environment): want one of otlp, none`},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317", `OTEL_EXPORTER_OTLP_ENDPOINT: "collector:4317" (environment): want http://host:port`},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://", `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: "http://" (environment): want http://host:port`},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://user:secret@c", `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: (environment): want http://host:port`},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "https://c/v1?api-key=secret", `OTEL_EXPORTER_OTLP_ENDPOINT: (environment): want http://host:port`},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", `OTEL_EXPORTER_OTLP_PROTOCOL: "http/json" (environment): want one of http/protobuf, grpc`},
		{"OTEL_EXPORTER_OTLP_HEADERS", "secret", `OTEL_EXPORTER_OTLP_HEADERS: (environment): want key=value`},
		{"OTEL_EXPORTER_OTLP_HEADERS", "a b=secret", `OTEL_EXPORTER_OTLP_HEADERS: (environment): want key=value`},
		{"OTEL_EXPORTER_OTLP_HEADERS", "a=secret%0d%0ab", `OTEL_EXPORTER_OTLP_HEADERS: (environment): want key=value`},
		{"OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", `OTEL_EXPORTER_OTLP_COMPRESSION: "zstd" (environment): want one of gzip, none`},
		{"OTEL_EXPORTER_OTLP_TIMEOUT", "10s", `OTEL_EXPORTER_OTLP_TIMEOUT: "10s" (environment): want a whole number from 1`},
		{"OTEL_EXPORTER_OTLP_CERTIFICATE", pem, `(environment): want a readable file with certificates in PEM`},
		{"OTEL_EXPORTER_OTLP_CLIENT_KEY", pem, `OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: "" (environment): want a readable file`},
		{"OTEL_TRACES_SAMPLER", "sometimes", `OTEL_TRACES_SAMPLER: "sometimes" (environment): want one of always_on, `},
		{"OTEL_BSP_MAX_QUEUE_SIZE", "0", `OTEL_BSP_MAX_QUEUE_SIZE: "0" (environment): want a whole number from 1`},
		{"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4000", `OTEL_BSP_MAX_EXPORT_BATCH_SIZE: "4000" (environment): want at most OTEL_BSP_MAX_QUEUE_SIZE, 2048`},
		{"OTEL_RESOURCE_ATTRIBUTES", "a", `OTEL_RESOURCE_ATTRIBUTES: "a" (environment): want key=value`},
	} {
		for _, command := range []string{"serve", "check-config"} {
			var stderr bytes.Buffer
			env := []string{"OTEL_TRACES_EXPORTER=otlp", tc.name + "=" + tc.value}
			code := runWithServe(t.Context(), []string{command, "--prefill", "http://p", "--decode", "http://d"}, env, io.Discard, &stderr, nil)
			if code != exitUsage || !strings.Contains(stderr.String(), tc.want) || strings.Contains(stderr.String(), "secret") {
				t.Errorf("%s with %s=%s: exit code %d, %q; want %d, %q", command, tc.name, tc.value, code, stderr.String(), exitUsage, tc.want)
			}
		}
	}
}

// All faults are named at once, those of the configuration among them.
func TestTelemetry_FaultsJoinThoseOfTheConfiguration(t *testing.T) {
	var stderr bytes.Buffer
	code := runWithServe(t.Context(), []string{"--max-streams", "-1"}, []string{"OTEL_SDK_DISABLED=x", "OTEL_SERVICE_NAME=y"}, io.Discard, &stderr, nil)
	if said := stderr.String(); code != exitUsage || !strings.Contains(said, "limits.max_streams") || !strings.Contains(said, "OTEL_SDK_DISABLED") {
		t.Errorf("exit code %d, %q", code, said)
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
		_, err := loadTelemetry(environment([]string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_TRACES_SAMPLER=traceidratio", "OTEL_TRACES_SAMPLER_ARG=" + arg}))
		if want := `OTEL_TRACES_SAMPLER_ARG: "` + arg + `" (environment): want a number from 0 to 1`; err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", arg, err, want)
		}
	}
}
