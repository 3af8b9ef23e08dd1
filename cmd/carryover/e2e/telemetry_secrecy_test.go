package e2e

import (
	"testing"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"carryover/upstream/vllmsim"
)

// What a client or an operator has written is in nothing that is exported, whatever way a turn goes.
func TestTraces_NothingOfAClientIsExported(t *testing.T) {
	r := startTraced(t, []string{"OPENAI_API_KEY=" + canaryUpstream, "OTEL_TRACES_SAMPLER=always_on"}, "--tenant-header", "X-Tenant")
	cfg := vllmsim.DefaultConfig()
	cfg.OutputTokenIDs = true
	ids := r.talkOfSecrets(t, cfg)
	r.setFault(t, r.prefill[0], vllmsim.Fault{Kind: vllmsim.FaultStatus, Status: 400, Count: 1})
	h := &history{}
	r.turn(t, h, traceOf(0), true, object{"conversation_id": canaryID, canaryPrompt: 1, "user": canaryPrompt})
	r.turn(t, h, traceOf(1), true, object{"model": canaryPrompt, "conversation_id": canaryID})
	r.traces.of(t, traceOf(0), 3)
	r.traces.of(t, traceOf(1), 3)
	r.traces.mu.Lock()
	defer r.traces.mu.Unlock()
	text, hits := r.traces.raw.String(), 0
	for _, s := range r.traces.spans {
		if s.attribute("carryover.reuse.outcome") == "hit" && s.Kind == otlp.Span_SPAN_KIND_SERVER {
			hits++
		}
	}
	if hits == 0 || len(text) < 10_000 {
		t.Fatalf("%d hits in %d bytes: nothing was shown", hits, len(text))
	}
	wantHidden(t, "what is exported", text, ids, canaryID, canaryPrompt, canaryKey, canaryTenant, canaryUpstream, longText(0)[:40], "CANARY")
}
