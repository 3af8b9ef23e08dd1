package e2e

import (
	"encoding/json"
	"net/http"
	"testing"

	"carryover/upstream/vllmsim"
)

// Turns whose conversation was found by its content are counted as such: a first turn, one that goes on, one whose history nobody has
// answered, and one that nothing names.
func TestByContent_MetricsTellTheSource(t *testing.T) {
	cfg := vllmsim.DefaultConfig()
	r := startRig(t, rigConfig{prefill: []vllmsim.Config{cfg}, decode: []vllmsim.Config{cfg}, flags: byContent})
	chat := func(members map[string]any, messages ...json.RawMessage) *answered {
		t.Helper()
		body := map[string]any{"model": "sim", "max_tokens": 200, "messages": messages}
		for name, value := range members {
			body[name] = value
		}
		a, err := r.post(t.Context(), "/v1/chat/completions", http.Header{}, encode(body), unwatched)
		if err != nil || a.status != http.StatusOK {
			t.Fatalf("%v: %s", err, a.raw)
		}
		r.turns.await(t, a.header.Get("X-Request-Id"))
		return a
	}
	named := map[string]any{"conversation_id": "warm"}
	history := []json.RawMessage{question("SAY " + longText(50) + ".")}
	for range 2 { // what has to be learnt of the template
		history = append(history, chat(named, history...).assistant(), question("SAY "+longText(51)+"."))
	}
	before := scrape(t, r.metrics).own("carryover_turns_id_source_total")
	first := question("SAY " + longText(52) + ".")
	answer := chat(nil, first)
	hit := chat(nil, first, answer.assistant(), question("SAY "+longText(53)+"."))
	chat(nil, question("Who has asked "+longText(54)), answer.assistant(), question("SAY one."))
	chat(nil, encode(map[string]string{"role": "system", "content": "SAY two."}))
	const series = "carryover_turns_id_source_total"
	want := map[string]float64{
		series + `{follow_up="false",id_source="content",outcome="miss"}`: 1,
		series + `{follow_up="true",id_source="content",outcome="hit"}`:   1,
		series + `{follow_up="true",id_source="content",outcome="miss"}`:  1,
		series + `{follow_up="false",id_source="none",outcome="miss"}`:    1,
	}
	wantSeries(t, grown(before, scrape(t, r.metrics).own(series)), want)
	if readOf(hit) <= 0 {
		t.Errorf("the turn that goes on: X-KV-Reuse %q", hit.reuse())
	}
	r.verify(t, pins{unused: 1}) // nothing names the last
}
