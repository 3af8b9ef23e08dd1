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
	text      string               // a piece of the answer
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
				return []string{"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"chatcmpl-" + l.id() + "\"}}\n\n"}
			},
			text: "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0}\n\n",
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
			text: "event: response.output_text.delta\ndata: {\"delta\":\"a\",\"sequence_number\":2,\"type\":\"response.output_text.delta\"}\n\n",
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
		sayHeaders(w)
		for _, event := range events(l) {
			_, _ = io.WriteString(w, event)
			_ = http.NewResponseController(w).Flush()
		}
		if cut {
			panic(http.ErrAbortHandler)
		}
	}
}

func (a agentPath) whole(l leg) []string { return append(append(a.opens(l), a.text), a.ends(l)...) }

// stream is the body of a request for a stream.
func (a agentPath) stream() string { return a.ask + `,"stream":true}` }

// agentError is what an engine says of its failure.
const agentError = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"internal_error\",\"message\":\"x\"}}\n\n"

// A load that fails shows behind what opens the stream. The client learns nothing of it.
func TestAgentStreams_FailedLoadsAreTriedAgain(t *testing.T) {
	for name, api := range agentPaths() {
		for how, fails := range map[string]behaviour{
			"cut": says(true, api.opens), "end": says(false, api.opens),
			"error": says(false, func(l leg) []string { return append(api.opens(l), agentError) }),
		} {
			r := newRig(t, setup{})
			r.decode[0].next(fails, says(false, api.whole))
			p := r.sendTo(api.path, api.stream())
			r.wantOK(p, "")
			legs := r.decode[0].ofClients()
			if want := hiddenOf(strings.Join(api.whole(legs[len(legs)-1]), "")); len(legs) != 2 || want != p.body {
				t.Errorf("%s, %s: got %q of %d decode legs, want %q of two", name, how, p.body, len(legs), want)
			}
		}
	}
}

// hiddenOf is what a client sees of a stream or an answer with agentSecret.
func hiddenOf(text string) string {
	text = strings.ReplaceAll(text, `,"status":"completed","kv_transfer_params":`+agentSecret, `,"status":"completed","kv_transfer_params":null`)
	return strings.ReplaceAll(text, `,"kv_transfer_params":`+agentSecret, "")
}

// A stream that ends without its last event must not look complete, however orderly it ends, unless the engine itself has said that it failed.
func TestAgentStreams_NoEndIsAnError(t *testing.T) {
	for name, api := range agentPaths() {
		for _, row := range []struct {
			cut    bool
			events int    // of the whole answer, which has four
			rest   string // behind them
		}{
			{true, 2, ""}, {false, 2, ""}, {true, 2, "event: message_stop\ndata: {\"type\":\"message_s"},
			{true, 3, ""}, {false, 3, ""}, {false, 2, agentError}, {false, 3, agentError},
		} {
			if row.events == len(api.opens(leg{})) {
				continue // is tried again
			}
			sends := func(l leg) []string { return append(api.whole(l)[:row.events:row.events], row.rest) }
			r := newRig(t, setup{})
			r.decode[0].always(says(row.cut, sends))
			p, legs := r.sendTo(api.path, api.stream()), r.decode[0].ofClients()
			sent := hiddenOf(strings.Join(api.whole(legs[0])[:row.events], ""))
			said, ok := strings.CutPrefix(p.body, sent)
			words, own := strings.CutPrefix(said, "event: error\ndata: "+api.words)
			if ok = ok && len(legs) == 1; row.rest == agentError {
				ok = ok && p.err == nil && said == agentError
			} else {
				ok = ok && p.err != nil && own && strings.Count(words, "\n\n") == 1 && (name != "responses" || strings.HasSuffix(words, `"sequence_number":3}`+"\n\n"))
			}
			if !ok {
				t.Errorf("%s, %+v: error %v, got %q of %d legs", name, row, p.err, p.body, len(legs))
			}
			r.wantSealed(p)
		}
	}
}
