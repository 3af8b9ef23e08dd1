package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/server"
)

// Comments and blank lines are no part of an answer: engines and gateways send them to keep a connection alive.

// asides are what may stand before and behind events.
func asides() map[string]string {
	return map[string]string{
		"comment": ": ping\n\n", "comment line": ": ping\n", "blank line": "\n", "CRLF": ": ping - 2026\r\n\r\n", "retry": "retry: 3000\n\n", "some": ": a\n: b\n\n\n: c\n\n",
	}
}

// writes is an engine that streams this text, flushing each part.
func writes(parts func(l leg) []string) behaviour {
	return func(w http.ResponseWriter, _ *http.Request, l leg) {
		sayHeaders(w)
		for _, part := range parts(l) {
			_, _ = io.WriteString(w, part)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// What a client has of an answer can't be taken back, even if it is a comment: the turn is not tried again.
func TestComments_BeforeTheFirstEventCommitTheTurn(t *testing.T) {
	failure := frames(`{"error":{"message":"KV load failed","type":"InternalServerError","code":500}}`, "[DONE]")
	for name, aside := range asides() {
		t.Run(name, func(t *testing.T) {
			for how, fails := range map[string]func(l leg) []string{
				"error":   func(l leg) []string { return []string{aside, shown(1)(l), failure} },
				"at once": func(leg) []string { return []string{aside + failure} },
				"broken":  func(leg) []string { return []string{aside} },
			} {
				r := newRig(t, setup{})
				r.decode[0].next(writes(fails))
				p := r.turn("c", 1, true)
				legs := r.decode[0].ofClients()
				if len(legs) != 1 || p.status != http.StatusOK {
					t.Fatalf("%s: got status %d of %d decode legs, want 200 of one", how, p.status, len(legs))
				}
				if how == "broken" {
					cutOff(t, p)
					p.body = lastError(t, p.body, "decode_failed")
				}
				if want := strings.Join(fails(legs[0]), ""); p.body != want {
					t.Errorf("%s: got %q, want %q", how, p.body, want)
				}
			}
		})
	}
}

func TestComments_BeforeTheFirstEventOfAgents(t *testing.T) {
	for name, api := range agentPaths() {
		for what, aside := range asides() {
			r := newRig(t, setup{})
			r.decode[0].next(writes(func(l leg) []string { return append([]string{aside}, api.opens(l)...) }))
			p := r.sendTo(api.path, api.ask+`,"stream":true}`)
			cutOff(t, p)
			if legs := r.decode[0].ofClients(); len(legs) != 1 || !strings.HasPrefix(p.body, aside+"event: error\n") {
				t.Errorf("%s, %s: got %q of %d decode legs, want an error event behind the comment", name, what, p.body, len(legs))
			}
		}
	}
}

// Decode's first event waits for the next one, but not for long. When the client has it, a failure is the answer's end, and the hand-over is
// rescued, because the first event does not show that decode has taken it.
func TestFirstEvent_WaitsForAWhileOnly(t *testing.T) {
	failure := []string{`{"error":{"message":"KV load failed","code":500}}`, "[DONE]"}
	for name, row := range map[string]struct {
		rest func(l leg) []string
		want func(l leg) string
	}{
		"goes on": {func(l leg) []string { return chatEvents(l)[1:] }, chatBytes},
		"fails":   {func(leg) []string { return failure }, func(l leg) string { return shown(1)(l) + frames(failure...) }},
	} {
		t.Run(name, func(t *testing.T) {
			r, gate := newRig(t, setup{cfg: func(c *server.Config) { c.FirstEvent = time.Millisecond }}), make(chan struct{})
			r.decode[0].next(func(w http.ResponseWriter, q *http.Request, l leg) {
				say(w, firstEvents(1)(l)...)
				waits(gate, func(w http.ResponseWriter, _ *http.Request, l leg) { say(w, row.rest(l)...) })(w, q, l)
			})
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			resp, err := r.open(ctx, http.MethodPost, chatPath, strings.NewReader(ask("c", true, history(1)...)))
			if err != nil {
				t.Fatal(err)
			}
			var head strings.Builder
			readUntil(t, io.TeeReader(oneByte{resp.Body}, &head), `"role"`)
			close(gate)
			p, legs := r.rest(resp), r.decode[0].ofClients()
			if got, want := head.String()+p.body, row.want(legs[0]); len(legs) != 1 || got != want {
				t.Errorf("got %q of %d legs, want %q", got, len(legs), want)
			}
			if name == "fails" {
				r.until(func() bool { return slices.ContainsFunc(r.decode[0].seen(), leg.rescues) })
			}
		})
	}
}

// Behind an event they reach the client at once: it may take the connection for dead otherwise.
func TestComments_BehindAnEventReachTheClientAtOnce(t *testing.T) {
	for name, aside := range map[string]string{"comment": ": ping\n\n", "comment line": ": ping\n", "CRLF": ": ping\r\n"} {
		for where, n := range map[string]int{"before the first": 0, "between texts": 5, "before the finish": len(outputIDs()), "behind the finish": len(outputIDs()) + 1} {
			t.Run(fmt.Sprint(name, " ", where), func(t *testing.T) {
				r, gate := newRig(t, setup{cfg: byTokens}), make(chan struct{})
				r.prefill[0].always(prefillsIDs)
				r.decode[0].always(func(w http.ResponseWriter, q *http.Request, l leg) {
					events := answerOf(l).events() // we have asked for the usage, so that the finish is held back
					say(w, events[:n]...)
					_, _ = io.WriteString(w, aside)
					_ = http.NewResponseController(w).Flush()
					waits(gate, func(w http.ResponseWriter, _ *http.Request, _ leg) { say(w, events[n:]...) })(w, q, l)
				})
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				resp, err := r.open(ctx, http.MethodPost, textPath, strings.NewReader(askIDs("c", true, count(100, 200)...)))
				if err != nil {
					t.Fatal(err)
				}
				readUntilTimes(t, resp.Body, ": ping", 1)
				close(gate)
				r.rest(resp)
				r.wantStored(1, "yes")
			})
		}
	}
}
