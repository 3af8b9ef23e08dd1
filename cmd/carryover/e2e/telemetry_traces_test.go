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
	r, before := provenRig(t, []string{"OTEL_SERVICE_NAME=proxy-7", "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test"})
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
		want := map[string]string{
			"http.request.method": "POST", "http.route": "/v1/chat/completions", "url.path": "/v1/chat/completions", "url.scheme": "http", "http.response.status_code": "200",
			"gen_ai.operation.name": "chat", "gen_ai.provider.name": "vllm", "gen_ai.request.model": "sim", "gen_ai.conversation.id": "*", "gen_ai.response.finish_reasons": "*",
			"gen_ai.usage.input_tokens": "+", "gen_ai.usage.output_tokens": "+", "carryover.ttft": "+", "carryover.answer": "",
			"carryover.reuse.outcome": wanted, "carryover.path": "prefill_decode", "carryover.retries": "0", "carryover.stored": "yes", "carryover.conversation.source": "conversation_id",
			"carryover.prefill.instance": authority(r.prefill[0]), "carryover.decode.instance": authority(r.decode[0]), "error.type": "",
		}
		if !stream {
			want["carryover.ttft"], want["carryover.answer"] = "", "+"
		}
		if wanted == "hit" {
			want["carryover.reuse.proof"], want["carryover.reuse.tokens_offered"], want["carryover.reuse.tokens_confirmed"] = "tokens", "+", "+"
			want["carryover.reuse.reason"], want["gen_ai.usage.cache_read.input_tokens"], want["carryover.reuse.saved"] = "*", "+", "*" // so few tokens that they save nothing
			want["carryover.reuse.tokens_read"] = "*"
		} else {
			want["carryover.reuse.reason"], want["carryover.reuse.proof"], want["carryover.reuse.tokens_offered"] = "first_turn", "", ""
			want["carryover.reuse.tokens_confirmed"] = "+"
		}
		wantAttributes(t, turn, want)
		if id := turn.attribute("gen_ai.conversation.id"); strings.Contains(id, "conversation") || len(id) < 8 {
			t.Errorf("conversation %q, want the beginning of a hash", id)
		}
		wantAttributes(t, one(t, steps, "lookup", 0), map[string]string{"carryover.reuse.outcome": wanted, "carryover.attempt": "0"})
		wantAttributes(t, one(t, steps, "put", 0), map[string]string{"carryover.stored": "yes"})
		for name, instance := range map[string]*vllmsim.Instance{"prefill leg": r.prefill[0], "decode leg": r.decode[0]} {
			leg := one(t, steps, name, 0)
			if leg.Kind != otlp.Span_SPAN_KIND_CLIENT {
				t.Errorf("%s: got kind %s", name, leg.Kind)
			}
			role, _, _ := strings.Cut(name, " ")
			wantAttributes(t, leg, map[string]string{
				"carryover.role": role, "carryover.instance": authority(instance), "gen_ai.request.model": "sim", "http.response.status_code": "200", "carryover.attempt": "0",
			})
			if got, want := legContexts(instance)[before+n], "00-"+traceOf(n)+"-"+leg.id()+"-01 vendor=x"; got != want {
				t.Errorf("turn %d, %s: the engine got %q, want %q", n, name, got, want)
			}
		}
		decode := one(t, steps, "decode leg", 0)
		events := 0
		for _, e := range decode.Events {
			if e.Name == "first event" && e.TimeUnixNano > decode.StartTimeUnixNano && e.TimeUnixNano < decode.EndTimeUnixNano {
				events++
			}
		}
		if want := map[bool]int{true: 1, false: 0}[stream]; events != want || (decode.attribute("gen_ai.response.time_to_first_chunk") != "") != stream {
			t.Errorf("turn %d: got %d events of the first one, %q; want %d", n, events, decode.attribute("gen_ai.response.time_to_first_chunk"), want)
		}
		if got := turn.resource; got["service.name"] != "proxy-7" || got["service.version"] != command.Version || got["service.instance.id"] == "" || got["deployment.environment.name"] != "test" {
			t.Errorf("got resource %v", got)
		}
	}
}
