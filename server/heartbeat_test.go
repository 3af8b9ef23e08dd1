package server_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/server"
)

// A client that waits hears something every so often, whatever it waits for, and has the same answer behind it. Errors are events then.
func TestHeartbeat_UntilTheAnswerBegins(t *testing.T) {
	apis := map[string]struct{ path, ask, beat string }{"chat": {chatPath, ask("c", true, history(1)...), ": heartbeat\n\n"}}
	for name, api := range agentPaths() {
		beat := ": heartbeat\n\n"
		if name == "messages" {
			beat = "event: ping\ndata: {\"type\": \"ping\"}\n\n"
		}
		apis[name] = struct{ path, ask, beat string }{api.path, api.ask + `,"stream":true}`, beat}
	}
	fails := status(http.StatusServiceUnavailable, "no")
	for name, api := range apis {
		answer := says(false, func(l leg) []string { return []string{chatBytes(l)} })
		if agent, ok := agentPaths()[name]; ok {
			answer = says(false, agent.whole)
		}
		for what, row := range map[string]struct {
			waitsFor string
			then     behaviour
			code     string // of the error, "" for a whole answer
		}{
			"prefill": {"prefill", prefills, ""}, "prefill, which fails": {"prefill", fails, ""},
			"decode": {"decode", answer, ""}, "decode, which fails": {"decode", fails, "decode_failed"},
			"decode, which answers whole": {"decode", answersWhole, "bad_decode_answer"},
		} {
			t.Run(name+" waits for "+what, func(t *testing.T) {
				r, gate := newRig(t, setup{cfg: func(c *server.Config) { c.Heartbeat = time.Millisecond }}), make(chan struct{})

				r.decode[0].always(answer)
				at := r.decode[0]
				if row.waitsFor == "prefill" {
					at = r.prefill[0]
				}
				at.always(waits(gate, row.then))
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				resp, err := r.open(ctx, http.MethodPost, api.path, strings.NewReader(api.ask))
				if err != nil {
					t.Fatal(err)
				}
				var head strings.Builder
				beat, _, _ := strings.Cut(api.beat, "\n")
				readUntilTimes(t, io.TeeReader(oneByte{resp.Body}, &head), beat, 3)
				close(gate)
				p := r.rest(resp)
				body := strings.TrimLeft(strings.ReplaceAll(head.String()+p.body, api.beat, "\x00"), "\x00")
				legs := r.decode[0].ofClients()
				if p.status != http.StatusOK || !strings.HasPrefix(p.header.Get("Content-Type"), "text/event-stream") {
					t.Errorf("got status %d and %v", p.status, p.header)
				}
				switch agent, ok := agentPaths()[name]; {
				case row.code == "" && ok:
					if want := hiddenOf(strings.Join(agent.whole(legs[len(legs)-1]), "")); body != want || p.err != nil {
						t.Errorf("got %q and %v, want %q", body, p.err, want)
					}
				case row.code == "":
					if want := chatBytes(legs[len(legs)-1]); body != want || p.err != nil {
						t.Errorf("got %q and %v, want %q", body, p.err, want)
					}
				case strings.Count(body, "\n\n") != 1 || p.err == nil || !strings.Contains(body, `"error"`):
					t.Errorf("got %q and %v, want an error event and no clean end", body, p.err)
				}
				if want := `"code":"` + row.code + `"`; row.code != "" {
					r.until(func() bool { return r.log.count(`"msg":"turn"`, `"level":"WARN"`, want) == 1 })
				}
			})
		}
	}
}

func answersWhole(w http.ResponseWriter, _ *http.Request, l leg) { answerJSON(w, wholeAnswer(l)) }

// Without a stream there is nothing to send before the answer.
func TestHeartbeat_NotForWholeAnswers(t *testing.T) {
	r := newRig(t, setup{cfg: func(c *server.Config) { c.Heartbeat = time.Nanosecond }})
	if p := r.turn("c", 1, false); p.status != http.StatusOK || strings.Contains(p.body, "heartbeat") || p.header.Get("Content-Type") != "application/json" {
		t.Errorf("got status %d, %v and %q", p.status, p.header, p.body)
	}
}
