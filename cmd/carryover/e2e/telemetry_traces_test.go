package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"carryover/cmd/carryover/command"
	"carryover/upstream/vllmsim"
)

func TestTraces_OfAPrefixAndAHit(t *testing.T) {
	r := startTraced(t, []string{"OTEL_SERVICE_NAME=proxy-7", "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test"}, "--log-level", "debug")
	r.log.awaitTaught(t, 1)
	r.turn(t, &history{}, traceOf(9), true, object{"conversation_id": "before"})
	h := &history{}
	for n, stream := range []bool{true, false, true} {
		a := r.turn(t, h, traceOf(n), stream, nil)
		wanted := "hit"
		if n == 0 {
			wanted = "prefix" // of the conversation before
		}
		if a.status != http.StatusOK || !strings.HasPrefix(a.reuse(), wanted+";") {
			t.Fatalf("turn %d: status %d, X-KV-Reuse %q, want a %s", n, a.status, a.reuse(), wanted)
		}
		turn, steps := r.traces.of(t, traceOf(n), 6)
		if got, want := spanNames(steps), []string{"lookup", "prefill leg", "handover wait", "decode leg", "put"}; !slices.Equal(got, want) {
			t.Fatalf("turn %d: got spans %q, want %q", n, got, want)
		}
		if turn.Name != "POST /v1/chat/completions" || turn.parent() != clientSpanID || turn.TraceState != "vendor=x" || turn.Status.GetCode() != otlp.Status_STATUS_CODE_UNSET {
			t.Errorf("turn %d: got %v", n, turn.Span)
		}
		want := map[string]string{ // of all, which TestSpans_HaveTheIDsAndTimesOfTheRecord has
			"http.route": "/v1/chat/completions", "http.response.status_code": "200", "gen_ai.request.model": "sim", "gen_ai.usage.output_tokens": "+", "carryover.ttft": "+", "carryover.answer": "",
			"carryover.reuse.outcome": wanted, "carryover.reuse.reason": "*", "carryover.stored": "yes",
			"carryover.prefill.instance": authority(r.prefill[0]), "carryover.decode.instance": authority(r.decode[0]), "error.type": "",
		}
		if !stream {
			want["carryover.ttft"], want["carryover.answer"] = "", "+"
		}
		wantAttributes(t, turn, want)
		if id := turn.attribute("gen_ai.conversation.id"); strings.Contains(id, "conversation") || len(id) < 8 {
			t.Errorf("conversation %q, want the beginning of a hash", id)
		}
		for name, instance := range map[string]*vllmsim.Instance{"prefill leg": r.prefill[0], "decode leg": r.decode[0]} {
			leg := one(t, steps, name, 0)
			if leg.Kind != otlp.Span_SPAN_KIND_CLIENT {
				t.Errorf("%s: got kind %s", name, leg.Kind)
			}
			wantAttributes(t, leg, map[string]string{"carryover.instance": authority(instance), "http.response.status_code": "200"})
			if got, want := legContexts(instance)[1+n], "00-"+traceOf(n)+"-"+leg.id()+"-01 vendor=x"; got != want {
				t.Errorf("turn %d, %s: the engine got %q, want %q", n, name, got, want)
			}
		}
		if got := turn.resource; got["service.name"] != "proxy-7" || got["service.version"] != command.Version || got["service.instance.id"] == "" || got["deployment.environment.name"] != "test" {
			t.Errorf("got resource %v", got)
		}
	}
}
