package server_test

import (
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
func asides() []string {
	return []string{": ping\n\n", ": ping\n", "\n", ": ping - 2026\r\n\r\n", "retry: 3000\n\n", ": a\n: b\n\n\n: c\n\n"}
}

// What a client has of an answer can't be taken back, even if it is a comment: the turn is not tried again.
func TestComments_BeforeTheFirstEventCommitTheTurn(t *testing.T) {
	failure := frames(`{"error":{"message":"KV load failed","type":"InternalServerError","code":500}}`, "[DONE]")
	for _, aside := range asides() {
		for how, fails := range map[string]func(l leg) []string{
			"error":   func(l leg) []string { return []string{aside, shown(1)(l), failure} },
			"at once": func(leg) []string { return []string{aside + failure} },
			"broken":  func(leg) []string { return []string{aside} },
		} {
			r := newRig(t, setup{})
			r.decode[0].next(says(false, fails))
			p, legs := r.turn("c", 1, true), r.decode[0].ofClients()
			if how == "broken" {
				cutOff(t, p)
				p.body = lastError(t, p.body, "decode_failed")
			}
			if want := strings.Join(fails(legs[0]), ""); len(legs) != 1 || p.status != http.StatusOK || p.body != want {
				t.Errorf("%q, %s: got status %d, %q of %d decode legs, want 200, %q of one", aside, how, p.status, p.body, len(legs), want)
			}
		}
	}
}

func TestComments_BeforeTheFirstEventOfAgents(t *testing.T) {
	for name, api := range agentPaths() {
		for _, aside := range asides() {
			r := newRig(t, setup{})
			r.decode[0].next(says(false, func(l leg) []string { return append([]string{aside}, api.opens(l)...) }))
			p := r.sendTo(api.path, api.stream())
			cutOff(t, p)
			if legs := r.decode[0].ofClients(); len(legs) != 1 || !strings.HasPrefix(p.body, aside+"event: error\n") {
				t.Errorf("%s, %q: got %q of %d decode legs, want an error event behind the comment", name, aside, p.body, len(legs))
			}
		}
	}
}

// Decode's first event waits for the next one, but not for long. When the client has it, a failure is the answer's end, and the hand-over is
// rescued, because the first event does not show that decode has taken it.
func TestFirstEvent_WaitsForAWhileOnly(t *testing.T) {
	failure := []string{`{"error":{"message":"KV load failed","code":500}}`, "[DONE]"}
	for _, fails := range []bool{false, true} {
		r, gate := newRig(t, setup{cfg: func(c *server.Config) { c.FirstEvent = time.Millisecond }}), make(chan struct{})
		events, want := chatEvents, chatBytes
		if fails {
			events = func(l leg) []string { return append(roleOnly(l), failure...) }
			want = func(l leg) string { return shown(1)(l) + frames(failure...) }
		}
		r.decode[0].next(pausing(events, 1, gate))
		resp := r.opens(t.Context(), chatPath, ask("c", true, history(1)...))
		var head strings.Builder
		readUntil(t, io.TeeReader(oneByte{resp.Body}, &head), `"role"`)
		close(gate)
		p, legs := r.rest(resp), r.decode[0].ofClients()
		if got, want := head.String()+p.body, want(legs[0]); len(legs) != 1 || got != want {
			t.Errorf("got %q of %d legs, want %q", got, len(legs), want)
		}
		if fails {
			r.until(func() bool { return slices.ContainsFunc(r.decode[0].seen(), leg.rescues) })
		}
	}
}

// Behind an event they reach the client at once: it may take the connection for dead otherwise.
func TestComments_BehindAnEventReachTheClientAtOnce(t *testing.T) {
	for _, aside := range []string{": ping\n\n", ": ping\n", ": ping\r\n"} {
		for _, n := range []int{0, 5, len(outputIDs()), len(outputIDs()) + 1} { // the last behind the finish
			r, gate := newRig(t, setup{cfg: byTokens}), make(chan struct{})
			r.prefill[0].always(prefillsIDs)
			r.decode[0].always(func(w http.ResponseWriter, q *http.Request, l leg) {
				events := answerOf(l).events() // we have asked for the usage, so that the finish is held back
				say(w, events[:n]...)
				_, _ = io.WriteString(w, aside)
				_ = http.NewResponseController(w).Flush()
				waits(gate, func(w http.ResponseWriter, _ *http.Request, _ leg) { say(w, events[n:]...) })(w, q, l)
			})
			resp := r.opens(t.Context(), textPath, askIDs("c", true, count(100, 200)...))
			readUntil(t, resp.Body, ": ping")
			close(gate)
			r.rest(resp)
			if r.wantStored(1, "yes"); t.Failed() {
				t.Fatalf("%q at %d", aside, n)
			}
		}
	}
}
