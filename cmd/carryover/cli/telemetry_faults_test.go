package cli

import (
	"bytes"
	"io"
	"strings"
	"testing"

	commandpkg "carryover/cmd/carryover/command"
)

func TestTelemetry_BadVariablesAreRefusedAtTheStart(t *testing.T) {
	for _, tc := range []struct{ name, value, want string }{
		{"OTEL_TRACES_EXPORTER", "zipkin", `OTEL_TRACES_EXPORTER: "zipkin" (environment): want one of otlp, none`},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", `OTEL_EXPORTER_OTLP_PROTOCOL: "http/json" (environment): want one of http/protobuf, grpc`},
		{"OTEL_RESOURCE_ATTRIBUTES", "a", `OTEL_RESOURCE_ATTRIBUTES: `},
	} {
		for _, command := range []string{"serve", "check-config"} {
			t.Run(command+" with "+tc.name, func(t *testing.T) {
				t.Setenv("OTEL_TRACES_EXPORTER", "otlp")
				t.Setenv(tc.name, tc.value)
				var stderr bytes.Buffer
				code := RunWithServe(t.Context(), []string{command, "--prefill", "http://p", "--decode", "http://d"}, nil, io.Discard, &stderr, nil)
				if code != commandpkg.ExitUsage || !strings.Contains(stderr.String(), tc.want) {
					t.Errorf("exit code %d, %q; want %d, %q", code, stderr.String(), commandpkg.ExitUsage, tc.want)
				}
			})
		}
	}
}

// All faults are named at once, those of the configuration among them.
func TestTelemetry_FaultsJoinThoseOfTheConfiguration(t *testing.T) {
	t.Setenv("OTEL_TRACES_EXPORTER", "zipkin")
	var stderr bytes.Buffer
	code := RunWithServe(t.Context(), []string{"--max-streams", "-1"}, nil, io.Discard, &stderr, nil)
	if said := stderr.String(); code != commandpkg.ExitUsage || !strings.Contains(said, "limits.max_streams") || !strings.Contains(said, "OTEL_TRACES_EXPORTER") {
		t.Errorf("exit code %d, %q", code, said)
	}
}
