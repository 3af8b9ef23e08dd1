package e2e

import (
	"context"
	"encoding/hex"
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
			want["carryover.reuse.reason"], want["gen_ai.usage.cache_read.input_tokens"], want["carryover.reuse.saved"] = "", "+", "*"
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

func TestTraces_OfARetry(t *testing.T) {
	r, before := provenRig(t, nil)
	h := &history{}
	r.turn(t, h, traceOf(0), true, nil)
	if err := r.prefill[0].SetFault(vllmsim.Fault{Kind: vllmsim.FaultStatus, Status: http.StatusInternalServerError, Tickets: true, Count: 1}); err != nil {
		t.Fatal(err)
	}
	a := r.turn(t, h, traceOf(1), true, nil)
	if a.status != http.StatusOK || noHit(a.reuse()) != "miss;reason=retried_without_ticket" {
		t.Fatalf("status %d, X-KV-Reuse %q", a.status, a.reuse())
	}
	turn, steps := r.traces.of(t, traceOf(1), 8)
	want := []string{"lookup", "prefill leg", "lookup", "prefill leg", "handover wait", "decode leg", "put"}
	if got := spanNames(steps); !slices.Equal(got, want) {
		t.Fatalf("got spans %q, want %q", got, want)
	}
	wantAttributes(t, turn, map[string]string{"carryover.retries": "1", "carryover.reuse.outcome": "prefix", "carryover.reuse.tokens_confirmed": "+", "carryover.reuse.reason": "retried_without_ticket", "error.type": ""})
	first, second := one(t, steps, "prefill leg", 0), one(t, steps, "prefill leg", 1)
	wantAttributes(t, first, map[string]string{"carryover.attempt": "0", "error.type": "status", "http.response.status_code": "500"})
	wantAttributes(t, second, map[string]string{"carryover.attempt": "1", "error.type": "", "http.response.status_code": "200"})
	if first.Status.GetCode() != otlp.Status_STATUS_CODE_ERROR || first.Status.GetMessage() != "" || second.Status.GetCode() != otlp.Status_STATUS_CODE_UNSET {
		t.Errorf("got statuses %v and %v", first.Status, second.Status)
	}
	contexts := legContexts(r.prefill[0])
	for i, leg := range []exported{first, second} {
		if got, want := contexts[before+1+i], "00-"+traceOf(1)+"-"+leg.id()+"-01 vendor=x"; got != want {
			t.Errorf("attempt %d: the engine got %q, want %q", i, got, want)
		}
	}
}

func TestTraces_OfATurnOfDecodeAlone(t *testing.T) {
	r := startTraced(t, nil)
	if a := r.turn(t, &history{}, traceOf(0), false, map[string]any{"n": 2}); a.status != http.StatusOK {
		t.Fatalf("status %d: %s", a.status, a.raw)
	}
	turn, steps := r.traces.of(t, traceOf(0), 3)
	if got, want := spanNames(steps), []string{"lookup", "decode leg"}; !slices.Equal(got, want) {
		t.Fatalf("got spans %q, want %q", got, want)
	}
	wantAttributes(t, turn, map[string]string{"carryover.path": "decode_only", "carryover.path.reason": "n", "carryover.prefill.instance": "", "carryover.reuse.outcome": "miss"})
	if got := legContexts(r.prefill[0]); len(got) != 0 {
		t.Errorf("prefill got %q", got)
	}
}

func TestTraces_OfAnErrorAndOfAClientThatLeaves(t *testing.T) {
	r := startTraced(t, nil)
	h := &history{}
	// Before the engines have told what they serve, decode is asked.
	within(nemesisPatience, func() bool {
		before := len(legContexts(r.decode[0]))
		r.turn(t, h, traceOf(3), true, map[string]any{"model": "CANARY-no-such-model"})
		return len(legContexts(r.decode[0])) == before
	})
	a := r.turn(t, h, traceOf(0), true, map[string]any{"model": "CANARY-no-such-model"})
	if a.status != http.StatusNotFound {
		t.Fatalf("status %d", a.status)
	}
	turn, steps := r.traces.of(t, traceOf(0), 2)
	wantAttributes(t, turn, map[string]string{"http.response.status_code": "404", "error.type": "model_not_found", "gen_ai.request.model": ""})
	if turn.Status.GetCode() != otlp.Status_STATUS_CODE_UNSET || steps[0].Status.GetCode() != otlp.Status_STATUS_CODE_ERROR {
		t.Errorf("got statuses %v and %v; a client's mistake is no failure of the server", turn.Status, steps[0].Status)
	}

	if err := r.decode[0].SetFault(vllmsim.Fault{Kind: vllmsim.FaultDieMidEvent, Events: 3, Count: 1}); err != nil {
		t.Fatal(err)
	}
	h = &history{}
	r.turn(t, h, traceOf(1), true, nil)
	turn, steps = r.traces.of(t, traceOf(1), 5)
	wantAttributes(t, turn, map[string]string{"http.response.status_code": "200", "error.type": "decode_failed"})
	wantAttributes(t, one(t, steps, "decode leg", 0), map[string]string{"error.type": "broken"})
	if turn.Status.GetCode() != otlp.Status_STATUS_CODE_ERROR || turn.Status.GetMessage() != "" {
		t.Errorf("got status %v of an answer that broke off", turn.Status)
	}

	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	if err := r.decode[0].SetFault(vllmsim.Fault{Kind: vllmsim.FaultNeverEnd, Count: 1}); err != nil {
		t.Fatal(err)
	}
	body := encode(map[string]any{"model": "sim", "max_tokens": 40, "stream": true, "messages": []any{question(longText(1))}})
	_, _ = r.post(ctx, "/v1/chat/completions", inTrace(traceOf(2)), body, func(event int, _ []byte) {
		if event == 2 {
			leave()
		}
	})
	turn, steps = r.traces.of(t, traceOf(2), 5)
	wantAttributes(t, turn, map[string]string{"http.response.status_code": "200", "error.type": "client_gone"})
	wantAttributes(t, one(t, steps, "decode leg", 0), map[string]string{"http.response.status_code": "200"})
	if turn.Status.GetCode() != otlp.Status_STATUS_CODE_UNSET {
		t.Errorf("got status %v; it is the client's doing", turn.Status)
	}
}

// A client without a context gets a trace of its own; one that forbids it gets none, and its engines are told.
func TestTraces_SamplingIsTheClients(t *testing.T) {
	r := startTraced(t, nil)
	send := func(header http.Header) {
		t.Helper()
		body := encode(map[string]any{"model": "sim", "max_tokens": 4, "messages": []any{question("q")}})
		if a, err := r.post(t.Context(), "/v1/chat/completions", header, body, unwatched); err != nil || a.status != http.StatusOK {
			t.Fatalf("%v %+v", err, a)
		}
	}
	send(http.Header{"Traceparent": {"00-" + traceOf(0) + "-" + clientSpanID + "-00"}})
	send(http.Header{"Traceparent": {"00-" + strings.ToUpper(traceOf(0)) + "-" + clientSpanID + "-01"}, "Tracestate": {"a=1"}, "Baggage": {"CANARY=1"}})
	contexts := legContexts(r.decode[0])
	if !strings.HasPrefix(contexts[0], "00-"+traceOf(0)+"-") || !strings.HasSuffix(contexts[0], "-00") {
		t.Errorf("the engine got %q, want the client's trace, not sampled", contexts[0])
	}
	own := strings.Split(contexts[1], "-")
	if len(own) != 4 || own[1] == traceOf(0) || own[3] != "01" {
		t.Fatalf("the engine got %q, want a trace of our own", contexts[1])
	}
	turn, _ := r.traces.of(t, own[1], 5)
	if turn.parent() != "" {
		t.Errorf("the turn is under %q, want the root", turn.parent())
	}
	r.traces.mu.Lock()
	defer r.traces.mu.Unlock()
	for _, s := range r.traces.spans {
		if hex.EncodeToString(s.TraceId) == traceOf(0) {
			t.Errorf("%s of a trace that its client has not sampled is exported", s.Name)
		}
	}
}
