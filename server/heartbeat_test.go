package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/server"
)

// A client that waits hears something every so often, whatever it waits for, and has the same answer behind it. Errors are events then.
func TestHeartbeat_UntilTheAnswerBegins(t *testing.T) {
	type api struct {
		path, ask, beat string
		says            func(l leg) string
	}
	apis := []api{{chatPath, ask("c", true, history(1)...), ": heartbeat\n\n", chatBytes}}
	for name, agent := range agentPaths() {
		beat := apis[0].beat
		if name == "messages" {
			beat = "event: ping\ndata: {\"type\": \"ping\"}\n\n"
		}
		apis = append(apis, api{agent.path, agent.stream(), beat, func(l leg) string { return strings.Join(agent.whole(l), "") }})
	}
	fails := status(http.StatusServiceUnavailable, "no")
	for _, api := range apis {
		answer := says(false, func(l leg) []string { return []string{api.says(l)} })
		for what, row := range map[string]struct {
			then behaviour
			code string // of the error, "" for a whole answer
		}{
			"prefill": {prefills, ""}, "prefill, which fails": {fails, ""},
			"decode": {answer, ""}, "decode, which fails": {fails, "decode_failed"},
			"decode, which answers whole": {func(w http.ResponseWriter, _ *http.Request, l leg) { answerJSON(w, wholeAnswer(l)) }, "bad_decode_answer"},
		} {
			t.Run(api.path+" waits for "+what, func(t *testing.T) {
				r, gate := newRig(t, setup{cfg: func(c *server.Config) { c.Heartbeat = time.Millisecond }}), make(chan struct{})
				r.decode[0].always(answer)
				at := r.decode[0]
				if strings.HasPrefix(what, "prefill") {
					at = r.prefill[0]
				}
				at.always(waits(gate, row.then))
				resp := r.opens(t.Context(), api.path, api.ask)
				var head strings.Builder
				beat, _, _ := strings.Cut(api.beat, "\n")
				readUntilTimes(t, io.TeeReader(oneByte{resp.Body}, &head), beat, 3)
				close(gate)
				p, legs := r.rest(resp), r.decode[0].ofClients()
				body := strings.TrimLeft(strings.ReplaceAll(head.String()+p.body, api.beat, "\x00"), "\x00")
				if p.status != http.StatusOK || !strings.HasPrefix(p.header.Get("Content-Type"), "text/event-stream") {
					t.Errorf("got status %d and %v", p.status, p.header)
				}
				if row.code == "" {
					if want := hiddenOf(api.says(legs[len(legs)-1])); body != want || p.err != nil {
						t.Errorf("got %q and %v, want %q", body, p.err, want)
					}
					return
				}
				if strings.Count(body, "\n\n") != 1 || p.err == nil || !strings.Contains(body, `"error"`) {
					t.Errorf("got %q and %v, want an error event and no clean end", body, p.err)
				}
				r.until(func() bool { return r.log.count(`"msg":"turn"`, `"level":"WARN"`, `"code":"`+row.code+`"`) == 1 })
			})
		}
	}
}

// Without a stream there is nothing to send before the answer.
func TestHeartbeat_NotForWholeAnswers(t *testing.T) {
	r := newRig(t, setup{cfg: func(c *server.Config) { c.Heartbeat = time.Nanosecond }})
	if p := r.turn("c", 1, false); p.status != http.StatusOK || strings.Contains(p.body, "heartbeat") || p.header.Get("Content-Type") != "application/json" {
		t.Errorf("got status %d, %v and %q", p.status, p.header, p.body)
	}
}
