package server_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// The engine's own names and addresses, which no client may ever see.
const (
	engineHost = "10.66.77.88"
	engineID   = "engine-5f3c"
)

// handover is what prefill answers for a leg.
func handover(l leg) string {
	return `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[1,2,3]],"remote_engine_id":"` + engineID +
		`","remote_request_id":"chatcmpl-` + l.id() + `","remote_host":"` + engineHost + `","remote_port":5600,"tp_size":1,"remote_num_tokens":180}`
}

// ticket is what decode answers at the end of a leg.
func ticket(l leg) string {
	tokens := len(l.prompt()) + saidIDs
	return `{"do_remote_prefill":false,"do_remote_decode":true,"remote_block_ids":[` + list(count(7, (tokens+rigBlock-1)/rigBlock)) + `],"remote_engine_id":"` + engineID +
		`","remote_request_id":"chatcmpl-` + l.id() + `","remote_host":"` + engineHost + `","remote_port":5601,"tp_size":1,"remote_num_tokens":` + strconv.Itoa(tokens) +
		`,"remote_blocks_expiry_time":12345.5,"output_token_ids":` + list(outputIDs()) + `}`
}

// prefills is a well-behaved prefill instance.
func prefills(w http.ResponseWriter, _ *http.Request, l leg) {
	if strings.HasPrefix(l.uri, textPath) && l.asksIDs() {
		prefillsIDs(w, nil, l)
		return
	}
	answerJSON(w, `{"id":"chatcmpl-`+l.id()+`","choices":[{"index":0,"message":{"role":"assistant","content":"H"},"finish_reason":"length"}],"kv_transfer_params":`+handover(l)+`}`)
}

// decodes is a well-behaved decode instance that always says "Hello world".
func decodes(w http.ResponseWriter, _ *http.Request, l leg) {
	text := strings.HasPrefix(l.uri, "/v1/completions")
	switch {
	case l.streams() && text:
		say(w, textEvents(l)...)
	case l.streams():
		say(w, chatEvents(l)...)
	case text:
		answerJSON(w, `{"id":"cmpl-`+l.id()+`","choices":[{"index":0,"text":"Hello world","finish_reason":"stop","stop_reason":null}],"usage":`+chatUsage(l)+`,"kv_transfer_params":`+ticket(l)+`}`)
	default:
		answerJSON(w, wholeAnswer(l)+`,"kv_transfer_params":`+ticket(l)+`}`)
	}
}

// wholeAnswer is what a client gets of decodes without stream, but for the closing brace.
func wholeAnswer(l leg) string {
	return `{"id":"chatcmpl-` + l.id() + `","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hello world","tool_calls":[]},"finish_reason":"stop","stop_reason":null}],"usage":` + chatUsage(l)
}

// chatEvents is a stream whose finish chunk has the ticket.
func chatEvents(l leg) []string {
	events := []string{
		chunk(l, `{"role":"assistant","content":""}`, "null"),
		chunk(l, `{"content":"Hello"}`, "null"),
		chunk(l, `{"content":" world"}`, "null"),
		strings.TrimSuffix(chunk(l, `{}`, `"stop"`), "}") + `,"kv_transfer_params":` + ticket(l) + `}`,
	}
	return append(append(events, countedIn(l, "chatcmpl-")...), "[DONE]")
}

// chatBytes is what a client gets of chatEvents.
func chatBytes(l leg) string {
	finish := chunk(l, `{}`, `"stop"`)
	if l.asksUsage() { // it has what the event with the usage had
		finish = strings.TrimSuffix(finish, "}") + `,"system_fingerprint":"f"}`
	}
	return frames(append(chatEvents(l)[:3:3], finish, "[DONE]")...)
}

func textEvents(l leg) []string {
	events := []string{
		`{"id":"cmpl-` + l.id() + `","choices":[{"index":0,"text":"Hello","finish_reason":null}]}`,
		`{"id":"cmpl-` + l.id() + `","choices":[{"index":0,"text":" world","finish_reason":"stop","stop_reason":null}],"kv_transfer_params":` + ticket(l) + `}`,
	}
	return append(append(events, countedIn(l, "cmpl-")...), "[DONE]")
}

func chunk(l leg, delta, finish string) string {
	return `{"id":"chatcmpl-` + l.id() + `","object":"chat.completion.chunk","choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + `}]}`
}

// frames renders events as vLLM writes them.
func frames(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString("data: " + e + "\n\n")
	}
	return b.String()
}

// say streams events, flushing each.
func say(w http.ResponseWriter, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	for _, e := range events {
		framed := frames(e)
		if of, ok := w.(*legWriter); ok {
			framed = of.event(e)
		}
		_, _ = io.WriteString(w, framed) // a client that is gone is found out by the test
		_ = http.NewResponseController(w).Flush()
	}
}

// sayHeaders sends the headers of a stream.
func sayHeaders(w http.ResponseWriter) { say(w); _ = http.NewResponseController(w).Flush() }

func answerJSON(w http.ResponseWriter, body string) {
	if of, ok := w.(*legWriter); ok {
		body = of.whole(body)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, body)
}

// status answers with a status and a body in vLLM's shape.
func status(code int, message string, header ...string) behaviour {
	quoted, _ := json.Marshal(message) // a string always can be
	return answersWith(code, "application/json", fmt.Sprintf(`{"error":{"message":%s,"type":"EngineType","param":null,"code":%d}}`, quoted, code), header)
}

// replyBody answers 200 with a body of any kind.
func replyBody(media, content string, header ...string) behaviour {
	return answersWith(http.StatusOK, media, content, header)
}

func answersWith(code int, media, content string, header []string) behaviour {
	return func(w http.ResponseWriter, _ *http.Request, _ leg) {
		w.Header().Set("Content-Type", media)
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, content)
	}
}

// raw takes over the connection and writes bytes as they are, then closes it.
func raw(bytes string) behaviour {
	return func(w http.ResponseWriter, _ *http.Request, _ leg) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, bytes)
		_ = conn.Close()
	}
}

// hangUp closes the connection without an answer.
func hangUp(w http.ResponseWriter, r *http.Request, l leg) { raw("")(w, r, l) }

// silent never answers.
func silent(_ http.ResponseWriter, r *http.Request, _ leg) { <-r.Context().Done() }

// breaks streams events, then bytes of an unfinished one, and breaks the connection.
func breaks(events func(leg) []string, rest string) behaviour {
	return func(w http.ResponseWriter, _ *http.Request, l leg) {
		sayHeaders(w)
		say(w, events(l)...)
		_, _ = io.WriteString(w, rest)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// where acts on some legs, and otherwise on the others.
func where(is func(leg) bool, act, otherwise behaviour) behaviour {
	return func(w http.ResponseWriter, r *http.Request, l leg) {
		if is(l) {
			act(w, r, l)
			return
		}
		otherwise(w, r, l)
	}
}

// waits runs act when the gate is open.
func waits(gate <-chan struct{}, act behaviour) behaviour {
	return func(w http.ResponseWriter, r *http.Request, l leg) {
		select {
		case <-gate:
			act(w, r, l)
		case <-r.Context().Done():
		}
	}
}

// pausing is a decode instance that streams n events of its answer, and the rest when the gate is open.
func pausing(events func(leg) []string, n int, gate <-chan struct{}) behaviour {
	return func(w http.ResponseWriter, r *http.Request, l leg) {
		say(w, events(l)[:n]...)
		waits(gate, func(w http.ResponseWriter, _ *http.Request, l leg) { say(w, events(l)[n:]...) })(w, r, l)
	}
}

// deadURL is an address where connections are refused: nothing listens below 1024 in a test.
func deadURL(i int) string { return "http://" + net.JoinHostPort(fmt.Sprintf("127.0.0.%d", i+2), "1") }
