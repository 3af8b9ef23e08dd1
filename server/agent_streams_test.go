package server_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// agentPath are the APIs of agents, with a request, the events of an answer to a leg, and what ends its stream with an error.
type agentPath struct {
	path, ask string
	opens     func(l leg) []string // before decode has the KV
	text      func() string        // a piece of the answer
	ends      func(l leg) []string
	words     string // of an error behind the opening and one piece, without its message
}

const agentSecret = `{"do_remote_decode":true,"remote_host":"` + engineHost + `"}`

func agentPaths() map[string]agentPath {
	response := func(kind string, n int, l leg, more string) string {
		return fmt.Sprintf("event: response.%s\ndata: {\"response\":{\"id\":\"resp_%s\"%s},\"sequence_number\":%d,\"type\":\"response.%[1]s\"}\n\n", kind, l.id(), more, n)
	}
	return map[string]agentPath{
		"messages": {
			path: "/v1/messages", ask: `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}]`,
			opens: func(l leg) []string {
				return []string{`event: message_start` + "\n" + `data: {"type":"message_start","message":{"id":"chatcmpl-` + l.id() + `"}}` + "\n\n"}
			},
			text: func() string {
				return "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0}\n\n"
			},
			ends: func(leg) []string {
				return []string{
					"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"kv_transfer_params\":" + agentSecret + "}\n\n",
					"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
				}
			},
			words: `{"type":"error","error":{"type":"api_error","message":`,
		},
		"responses": {
			path: "/v1/responses", ask: `{"model":"m","input":"x"`,
			opens: func(l leg) []string {
				return []string{response("created", 0, l, ""), response("in_progress", 1, l, "")}
			},
			text: func() string {
				return "event: response.output_text.delta\ndata: {\"delta\":\"a\",\"sequence_number\":2,\"type\":\"response.output_text.delta\"}\n\n"
			},
			ends: func(l leg) []string {
				return []string{response("completed", 3, l, `,"status":"completed","kv_transfer_params":`+agentSecret)}
			},
			words: `{"type":"error","code":"decode_failed","message":`,
		},
	}
}

// says is an engine that sends these events, and then ends the stream in order or cuts the connection.
func says(cut bool, events func(l leg) []string) behaviour {
	return func(w http.ResponseWriter, _ *http.Request, l leg) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for _, event := range events(l) {
			_, _ = io.WriteString(w, event)
			_ = http.NewResponseController(w).Flush()
		}
		if cut {
			panic(http.ErrAbortHandler)
		}
	}
}

func (a agentPath) whole(l leg) []string { return append(append(a.opens(l), a.text()), a.ends(l)...) }

// A load that fails shows behind what opens the stream. The client learns nothing of it.
func TestAgentStreams_FailedLoadsAreTriedAgain(t *testing.T) {
	for name, api := range agentPaths() {
		failed := map[string]behaviour{
			"cut": says(true, api.opens),
			"end": says(false, api.opens),
			"error": says(false, func(l leg) []string {
				return append(api.opens(l), "event: error\ndata: {\"type\":\"error\",\"error\":{\"message\":\"x\"}}\n\n")
			}),
		}
		for how, fails := range failed {
			r := newRig(t, setup{})
			r.decode[0].next(fails, says(false, api.whole))
			p := r.sendTo(api.path, api.ask+`,"stream":true}`)
			r.wantOK(p, "")
			legs := r.decode[0].ofClients()
			if len(legs) != 2 {
				t.Fatalf("%s, %s: %d decode legs, want 2", name, how, len(legs))
			}
			if want := strings.Join(api.whole(legs[1]), ""); hiddenOf(want) != p.body {
				t.Errorf("%s, %s: got %q, want %q", name, how, p.body, hiddenOf(want))
			}
		}
	}
}

// hiddenOf is what a client sees of a stream or an answer with agentSecret.
func hiddenOf(text string) string {
	text = strings.ReplaceAll(text, `,"status":"completed","kv_transfer_params":`+agentSecret, `,"status":"completed","kv_transfer_params":null`)
	return strings.ReplaceAll(text, `,"kv_transfer_params":`+agentSecret, "")
}

// A stream that ends without its last event must not look complete, however orderly it ends.
func TestAgentStreams_NoEndIsAnError(t *testing.T) {
	for name, api := range agentPaths() {
		begun := func(l leg) []string { return append(api.opens(l), api.text()) }
		for how, ends := range map[string]behaviour{
			"cut": says(true, begun), "end": says(false, begun),
			"in an event": says(true, func(l leg) []string { return append(begun(l), "event: message_stop\ndata: {\"type\":\"message_s") }),
		} {
			r := newRig(t, setup{})
			r.decode[0].always(ends)
			p := r.sendTo(api.path, api.ask+`,"stream":true}`)
			sent := strings.Join(begun(r.decode[0].seen()[0]), "")
			words, ok := strings.CutPrefix(p.body, sent+"event: error\ndata: ")
			if p.err == nil || !ok || !strings.HasPrefix(words, api.words) || strings.Count(p.body, "\n\n") != strings.Count(sent, "\n\n")+1 {
				t.Errorf("%s, %s: error %v, got %q", name, how, p.err, p.body)
			}
			if name == "responses" && !strings.HasSuffix(words, `"sequence_number":3}`+"\n\n") {
				t.Errorf("%s: got %q, want the number behind the last", how, words)
			}
			if len(r.decode[0].seen()) != 1 {
				t.Errorf("%s, %s: tried again behind what the client has", name, how)
			}
			r.wantSealed(p)
		}
	}
}

// Behind message_delta the ticket is kept, and the answer is not complete yet.
func TestAgentStreams_MessageWithoutItsStopIsAnError(t *testing.T) {
	api := agentPaths()["messages"]
	for _, cut := range []bool{true, false} {
		r := newRig(t, setup{})
		r.decode[0].always(says(cut, func(l leg) []string { all := api.whole(l); return all[:len(all)-1] }))
		p := r.sendTo(api.path, api.ask+`,"stream":true}`)
		if p.err == nil || !strings.Contains(p.body, "event: message_delta\n") || !strings.Contains(p.body, "event: error\ndata: "+api.words) {
			t.Errorf("cut %t: error %v, got %q", cut, p.err, p.body)
		}
	}
}

// What the engine says of its failure is the end; nothing is added to it.
func TestAgentStreams_EnginesErrorIsTheEnd(t *testing.T) {
	for name, api := range agentPaths() {
		broken := func(l leg) []string {
			return append(api.opens(l), api.text(), "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"internal_error\",\"message\":\"x\"}}\n\n")
		}
		r := newRig(t, setup{})
		r.decode[0].always(says(false, broken))
		p := r.sendTo(api.path, api.ask+`,"stream":true}`)
		if want := strings.Join(broken(r.decode[0].seen()[0]), ""); p.err != nil || p.body != want {
			t.Errorf("%s: error %v, got %q, want %q", name, p.err, p.body, want)
		}
	}
}

func TestAgentStreams_WholeAnswersAreThoseOfAStockEngine(t *testing.T) {
	for name, tc := range map[string]struct{ id, answer, want string }{
		"messages":  {"chatcmpl-", `","type":"message","content":[],"stop_reason":"end_turn","kv_transfer_params":` + agentSecret + `}`, `","type":"message","content":[],"stop_reason":"end_turn"}`},
		"responses": {"resp_", `","status":"completed","kv_transfer_params":` + agentSecret + `,"output":[]}`, `","status":"completed","kv_transfer_params":null,"output":[]}`},
	} {
		api := agentPaths()[name]
		r := newRig(t, setup{})
		r.decode[0].always(func(w http.ResponseWriter, _ *http.Request, l leg) { answerJSON(w, `{"id":"`+tc.id+l.id()+tc.answer) })
		p := r.sendTo(api.path, api.ask+`}`)
		r.wantOK(p, "")
		if want := `{"id":"` + tc.id + r.decode[0].seen()[0].id() + tc.want; p.body != want {
			t.Errorf("%s: got %q, want %q", name, p.body, want)
		}
	}
}
