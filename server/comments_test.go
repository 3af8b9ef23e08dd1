package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
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

func TestComments_BeforeTheFirstEventCommitNothing(t *testing.T) {
	failure := frames(`{"error":{"message":"KV load failed","type":"InternalServerError","code":500}}`, "[DONE]")
	for name, aside := range asides() {
		t.Run(name, func(t *testing.T) {
			for how, fails := range map[string]behaviour{
				"error":        writes(func(l leg) []string { return []string{aside, frames(chatEvents(l)[0]), failure} }),
				"error behind": writes(func(l leg) []string { return []string{aside, frames(chatEvents(l)[0]), aside, failure} }),
				"at once":      writes(func(l leg) []string { return []string{aside + failure} }),
				"broken":       breaks(nothing, aside),
			} {
				r := newRig(t, setup{})
				r.decode[0].next(fails)
				p := r.turn("c", 1, true)
				r.wantOK(p, "miss;")
				legs := r.decode[0].ofClients()
				if len(legs) != 2 {
					t.Fatalf("%s: got %d decode legs, want 2: nothing has reached the client", how, len(legs))
				}
				if want := chatBytes(legs[1]); p.body != want {
					t.Errorf("%s: got %q, want %q", how, p.body, want)
				}
				r.wantStored(1, "yes")
			}
		})
	}
}

func TestComments_BeforeTheFirstEventOfAgents(t *testing.T) {
	for name, api := range agentPaths() {
		for what, aside := range asides() {
			r := newRig(t, setup{})
			r.decode[0].next(
				writes(func(l leg) []string { return append([]string{aside}, api.opens(l)...) }),
				writes(func(l leg) []string { return append([]string{aside}, api.whole(l)...) }),
			)
			p := r.sendTo(api.path, api.ask+`,"stream":true}`)
			r.wantOK(p, "")
			legs := r.decode[0].ofClients()
			if len(legs) != 2 {
				t.Fatalf("%s, %s: %d decode legs, want 2", name, what, len(legs))
			}
			if want := aside + hiddenOf(strings.Join(api.whole(legs[1]), "")); p.body != want {
				t.Errorf("%s, %s: got %q, want %q", name, what, p.body, want)
			}
		}
	}
}

// Nothing but comments is an answer that breaks off before it begins.
func TestComments_WithoutAnEventAreAnErrorWithAStatus(t *testing.T) {
	r := newRig(t, setup{})
	r.decode[0].always(breaks(nothing, ": ping\n\n"))
	r.wantError(r.turn("c", 1, true), 502, "decode_failed")
}

// Behind an event they reach the client at once: it may take the connection for dead otherwise.
func TestComments_BehindAnEventReachTheClientAtOnce(t *testing.T) {
	for name, aside := range map[string]string{"comment": ": ping\n\n", "comment line": ": ping\n", "CRLF": ": ping\r\n"} {
		for where, n := range map[string]int{"between texts": 5, "before the finish": len(outputIDs()), "behind the finish": len(outputIDs()) + 1} {
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
