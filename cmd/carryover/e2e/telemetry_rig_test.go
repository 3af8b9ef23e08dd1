package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"carryover/upstream/vllmsim"
)

// spanNames are the names of spans.
func spanNames(spans []exported) (all []string) {
	for _, s := range spans {
		all = append(all, s.Name)
	}
	return all
}

// one is the span of a name, the n-th of several.
func one(t *testing.T, spans []exported, name string, n int) exported {
	t.Helper()
	for _, s := range spans {
		if s.Name == name {
			if n == 0 {
				return s
			}
			n--
		}
	}
	t.Fatalf("no span %q among %q", name, spanNames(spans))
	return exported{}
}

// wantAttributes checks attributes; "+" stands for a positive number, "*" for any value, "" for none.
func wantAttributes(t *testing.T, s exported, want map[string]string) {
	t.Helper()
	for key, value := range want {
		got := s.attribute(key)
		switch value {
		case "+":
			if got == "" || got == "0" || strings.HasPrefix(got, "-") {
				t.Errorf("%s: %s is %q, want a positive number", s.Name, key, got)
			}
		case "*":
			if got == "" {
				t.Errorf("%s: no %s", s.Name, key)
			}
		default:
			if got != value {
				t.Errorf("%s: %s is %q, want %q", s.Name, key, got, value)
			}
		}
	}
}

// legContexts are the trace contexts of the legs of traced turns that an instance got, in their order.
func legContexts(instance *vllmsim.Instance) (all []string) {
	for _, r := range instance.Requests() {
		if r.Header.Get("Traceparent") != "" {
			all = append(all, strings.TrimSpace(r.Header.Get("Traceparent")+" "+r.Header.Get("Tracestate")))
		}
	}
	return all
}

// setVariables sets variables of the process, which OpenTelemetry's SDK reads.
func setVariables(t *testing.T, env ...string) {
	t.Helper()
	for _, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
}

// tracedRig is the whole program with its traces going to a collector, in front of a pair of instances.
type tracedRig struct {
	*rig
	log    *writes
	traces *collecting
}

func startTraced(t *testing.T, env []string, flags ...string) tracedRig {
	t.Helper()
	c := startCollector(t)
	cfg := engineWith(`{"output_token_ids":true}`)
	prefill, decode := startInstances(t, 1, cfg), startInstances(t, 1, cfg)
	setVariables(t, append([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.url, "OTEL_METRICS_EXPORTER=none", "OTEL_BSP_SCHEDULE_DELAY=20"}, env...)...)
	r, log := startProgram(t, env, append([]string{"--prefill", prefill[0].URL(), "--decode", decode[0].URL(), "--conversation-by-content", "off"}, flags...)...)
	r.prefill, r.decode, r.cfg = prefill, decode, cfg
	return tracedRig{r, log, c}
}

// traceOf is a trace id for the n-th turn of a test.
func traceOf(n int) string { return fmt.Sprintf("%032x", 0xabc000+n) }

const clientSpanID = "00f067aa0ba902b7"

// inTrace is the header of a client whose turn belongs to a trace.
func inTrace(trace string) http.Header {
	return http.Header{"Traceparent": {"00-" + trace + "-" + clientSpanID + "-01"}, "Tracestate": {"vendor=x"}}
}

// turn sends the next turn of a history under a trace and adds both sides to it.
func (r tracedRig) turn(t *testing.T, h *history, trace string, stream bool, members object) *answered {
	t.Helper()
	h.messages = append(h.messages, question(longText(len(h.messages))))
	body := object{"model": "sim", "max_tokens": 40, "stream": stream, "conversation_id": "the-conversation", "messages": h.messages}
	maps.Copy(body, members)
	a, err := r.post(t.Context(), "/v1/chat/completions", inTrace(trace), encode(body), unwatched)
	noError(t, err)
	if a.status == http.StatusOK {
		h.messages = append(h.messages, a.assistant())
	}
	return a
}
