package server_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"carryover/server"
)

// inPieces streams text in pieces of n bytes, each flushed.
func inPieces(text string, n int) behaviour {
	return func(w http.ResponseWriter, _ *http.Request, _ leg) {
		sayHeaders(w)
		for ; len(text) > 0; text = text[min(n, len(text)):] {
			_, _ = io.WriteString(w, text[:min(n, len(text))])
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// A stream of vLLM 0.33 has params that are null in each chunk. A client sees none of them, and the ones of the finish leave the ticket.
func TestNullParams_RecordedStreams(t *testing.T) {
	params := regexp.MustCompile(`,"kv_transfer_params":(null|\{.*\})\}`)
	question := map[string]string{
		chatPath: `{"model":"m","stream":true,"conversation_id":"c","messages":[{"role":"user","content":"question"}]}`,
		textPath: `{"model":"m","stream":true,"conversation_id":"c","prompt":"question"}`,
	}
	for _, rec := range []struct {
		file, id, path string
		stored         string
	}{
		{"chat-params", "89b638f54109a1ee", chatPath, "uncounted"},
		{"chat-plug-in", "ae9657791516b97a", chatPath, "uncounted"},
		{"chat-null", "ba9b7239fc5cb4dd", chatPath, "engine_sends_no_params"},
		{"text-params", "b72967bf128eec21", textPath, "uncounted"},
	} {
		recorded, err := os.ReadFile("../sse/testdata/vllm-0.33-" + rec.file + ".sse")
		if err != nil {
			t.Fatal(err)
		}
		stream := string(recorded)
		for _, n := range []int{7, 250, len(stream)} {
			t.Run(fmt.Sprintf("%s, pieces of %d", rec.file, n), func(t *testing.T) {
				r := newRig(t, setup{cfg: func(c *server.Config) { c.ReuseMinTokens = 1 }})
				r.tell(r.decode[0], metricsOf(rigIncarnation, 32))
				r.decode[0].next(func(w http.ResponseWriter, q *http.Request, l leg) {
					inPieces(strings.ReplaceAll(stream, rec.id, l.id()), n)(w, q, l)
				})
				p := r.sendTo(rec.path, question[rec.path])
				r.wantOK(p, "miss;")
				want := params.ReplaceAllString(strings.ReplaceAll(stream, rec.id, r.decode[0].seen()[0].id()), "}")
				if p.body != want {
					t.Errorf("got\n%s\nwant\n%s", p.body, want)
				}
				r.wantStored(1, rec.stored)
			})
		}
	}
}

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
			a.leg.id(), len(a.prompt), len(a.output)), "[DONE]")
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
