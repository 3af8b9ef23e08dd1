package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	commandpkg "carryover/cmd/carryover/command"
)

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
			code := RunWithServe(t.Context(), []string{command, "--prefill", "http://p", "--decode", "http://d"}, env, io.Discard, &stderr, nil)
			if code != commandpkg.ExitUsage || !strings.Contains(stderr.String(), tc.want) || strings.Contains(stderr.String(), "secret") {
				t.Errorf("%s with %s=%s: exit code %d, %q; want %d, %q", command, tc.name, tc.value, code, stderr.String(), commandpkg.ExitUsage, tc.want)
			}
		}
	}
}

// All faults are named at once, those of the configuration among them.
func TestTelemetry_FaultsJoinThoseOfTheConfiguration(t *testing.T) {
	var stderr bytes.Buffer
	code := RunWithServe(t.Context(), []string{"--max-streams", "-1"}, []string{"OTEL_SDK_DISABLED=x", "OTEL_SERVICE_NAME=y"}, io.Discard, &stderr, nil)
	if said := stderr.String(); code != commandpkg.ExitUsage || !strings.Contains(said, "limits.max_streams") || !strings.Contains(said, "OTEL_SDK_DISABLED") {
		t.Errorf("exit code %d, %q", code, said)
	}
}
