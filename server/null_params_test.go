package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// The same of a stream whose ids and usage decode was asked for: the client gets what a stock engine sends where nobody asks.
func TestNullParams_OfStreamsWithIDs(t *testing.T) {
	newer := func(a *idAnswer) []string {
		events := a.events()
		for i, e := range events[:len(events)-1] {
			e = strings.Replace(e, "}]", `,"weight_versions":null}]`, 1)
			if !strings.Contains(e, "kv_transfer_params") {
				e = strings.TrimSuffix(e, "}") + `,"kv_transfer_params":null}`
			}
			events[i] = e
		}
		last := len(events) - 1
		return append(events[:last:last], fmt.Sprintf(`{"id":"cmpl-%s","object":"text_completion","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d},"system_fingerprint":"v"}`,
			a.leg.id(), len(a.prompt), saidIDs), "[DONE]")
	}
	r := newRig(t, setup{cfg: byTokens})
	r.prefill[0].always(prefillsIDs)
	r.decode[0].always(func(w http.ResponseWriter, _ *http.Request, l leg) { say(w, newer(answerOf(l))...) })
	prompt := count(100, 200)
	p := r.sendIDs("c", true, prompt...)
	r.wantOK(p, "miss;")
	events := eventsOf(p.body)
	if got := len(events); got != len(outputIDs())+1 {
		t.Fatalf("got %d events:\n%s", got, p.body)
	}
	for i, e := range events {
		choice, more := `"text":" w","finish_reason":null,"prompt_token_ids":null,"token_ids":null,"weight_versions":null`, ""
		if i == len(outputIDs()) {
			choice, more = `"text":"","finish_reason":"stop","stop_reason":null,"token_ids":null,"weight_versions":null`, `,"system_fingerprint":"v"`
		}
		if want := fmt.Sprintf(`{"id":"cmpl-%s","object":"text_completion","choices":[{"index":0,%s}]%s}`, r.decode[0].seen()[0].id(), choice, more); e != want {
			t.Errorf("event %d: got\n%s\nwant\n%s", i, e, want)
		}
	}
	r.wantStored(1, "yes")
	r.wantOK(r.sendIDs("c", true, append(append(prompt, outputIDs()...), count(300, 50)...)...), "hit;")
}
