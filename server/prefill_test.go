package server_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"carryover/server"
)

// ways runs a test for a stream and for a whole answer.
func ways(t *testing.T, test func(t *testing.T, stream bool)) {
	t.Helper()
	for _, stream := range []bool{true, false} {
		t.Run(map[bool]string{true: "stream", false: "whole"}[stream], func(t *testing.T) { test(t, stream) })
	}
}

func TestTurn_CarriesTicketToNextTurn(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		r := newRig(t, setup{})
		r.wantOK(r.turn("c", 1, stream), "miss;reason=first_turn")
		for n := 2; n <= 4; n++ {
			r.wantOK(r.turn("c", n, stream), "hit;tokens=200;age=")
		}
		prefill, decode := r.prefill[0].seen(), r.decode[0].seen()
		if prefill[0].ticket() != "" {
			t.Errorf("the first prefill leg carries %s", prefill[0].body)
		}
		for n := 1; n < 4; n++ {
			if got, want := prefill[n].ticket(), "chatcmpl-"+decode[n-1].id(); got != want {
				t.Errorf("turn %d: got ticket %q, want that of the turn before, %q", n+1, got, want)
			}
		}
	})
}

func TestTurn_TextCompletionIsReused(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		r := newRig(t, setup{})
		ask := func(prompt string) reply {
			return r.sendTo(textPath, fmt.Sprintf(`{"model":"m","stream":%v,"conversation_id":"c","prompt":%q}`, stream, prompt))
		}
		r.wantOK(ask("Say it."), "miss;reason=first_turn")
		r.wantOK(ask("Say it.Hello world\n\nAgain."), "hit;tokens=200;")
	})
}

func TestPrefill_RefusedEverywhere_DecodeServesAlone(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		r := newRig(t, setup{deadPrefills: -4})
		r.wantOK(r.turn("c", 1, stream), "miss;reason=bypass")
		if l := r.decode[0].seen()[0]; strings.Contains(l.body, "kv_transfer_params") {
			t.Errorf("decode alone got %s", l.body)
		}
	})
}

func TestPrefill_AnotherInstanceTakesOverWithTheTicket(t *testing.T) {
	r := newRig(t, setup{prefills: 1, deadPrefills: 2})
	r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
	r.wantOK(r.turn("c", 2, true), "hit;")
	if legs := r.prefill[0].seen(); legs[1].ticket() == "" {
		t.Errorf("got %s, want the ticket that was not sent", legs[1].body)
	}
}

func TestPrefill_DiesBetweenTurns_TicketIsPutBack(t *testing.T) {
	r := newRig(t, setup{})
	r.wantOK(r.turn("c", 1, true), "miss;")
	r.prefill[0].server.Close()
	r.wantOK(r.turn("c", 2, true), "miss;reason=bypass")
	// Decode alone answers without params, so what is there is the ticket of turn 1.
	if got := r.store.Len(); got != 1 {
		t.Errorf("got %d conversations in the store, want the ticket put back", got)
	}
}

func TestPrefill_TurnsOfDecodeAloneAreBounded(t *testing.T) {
	r := newRig(t, setup{deadPrefills: -1})
	gate := make(chan struct{})
	r.decode[0].always(waits(gate, decodes))
	answers := make(chan reply, 16)
	for range 16 {
		go func() { answers <- r.turn("", 1, false) }()
	}
	r.decode[0].await(16)
	p := r.turn("", 1, false)
	r.wantError(p, http.StatusServiceUnavailable, "prefill_unavailable")
	wantRetryAfter(t, p, "1")
	close(gate)
	for range 16 {
		r.wantOK(<-answers, "miss;")
	}
}

func wantRetryAfter(t *testing.T, p reply, want string) {
	t.Helper()
	if got := p.header.Get("Retry-After"); got != want {
		t.Errorf("got Retry-After %q, want %q", got, want)
	}
}

func TestPrefill_BeyondItsTimeLimitIsCancelled(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{cfg: func(c *server.Config) { c.PrefillTimeout = soonOver }})
	r.prefill[0].next(silent)
	r.wantError(r.turn("c", 1, true), http.StatusGatewayTimeout, "prefill_timeout")
	r.prefill[0].awaitEnd(1) // the engine's request is cancelled
	if n := len(r.decode[0].seen()); n != 0 {
		t.Errorf("decode saw %d legs", n)
	}
}

func TestPrefill_FailsWithTheTicket_OneRetryWithout(t *testing.T) {
	failures := map[string]behaviour{
		"500": status(500, "KV load failed"), "502": status(502, ""), "503": status(503, ""), "504": status(504, ""),
		"hang-up": hangUp, "200 with error": replyBody("application/json", `{"error":{"message":"x"}}`),
		"cut short": raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{\"id\":"),
	}
	for name, fails := range failures {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{})
			r.wantOK(r.turn("c", 1, true), "miss;")
			r.prefill[0].next(fails)
			r.wantOK(r.turn("c", 2, true), "miss;reason=retried_without_ticket")
			legs := r.prefill[0].seen()
			if len(legs) != 3 || legs[1].ticket() == "" || legs[2].ticket() != "" {
				t.Fatalf("got %d prefill legs, want the second with a ticket and a third without", len(legs))
			}
			p := legs[2].params()
			if v, ok := p["remote_block_ids"]; !ok || v != nil || p["remote_engine_id"] != nil || p["remote_host"] != nil {
				t.Errorf("got retry params %v, want the null template", p)
			}
			if legs[1].id() == legs[2].id() {
				t.Errorf("the retry has the same request id %q", legs[1].id())
			}
			if d := r.decode[0].seen(); d[1].id() != legs[2].id() {
				t.Errorf("got decode leg id %q, want that of the retried prefill leg, %q", d[1].id(), legs[2].id())
			}
		})
	}
}

func TestPrefill_UnreadableAnswerGivesNoHandOver(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(z, `{"id":"x"}`)
	_ = z.Close()
	for name, answers := range map[string]behaviour{
		"not JSON": replyBody("application/json", "<html>"), "truncated JSON": replyBody("application/json", `{"id":`),
		"array": replyBody("application/json", `[]`), "content type": replyBody("text/html", `{"id":"x"}`), "no content type": replyBody("", `{"id":"x"}`),
		"gzip": replyBody("application/json", zipped.String(), "Content-Encoding", "gzip"), "event stream": replyBody("text/event-stream", "data: {}\n\n"),
		"too large": func(w http.ResponseWriter, _ *http.Request, _ leg) {
			answerJSON(w, `{"x":"`+strings.Repeat("y", 17<<20)+`"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{})
			r.prefill[0].next(answers)
			r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
			if l := r.decode[0].seen()[0]; strings.Contains(l.body, "kv_transfer_params") {
				t.Errorf("decode got %s", l.body)
			}
		})
	}
}

func TestPrefill_BadHandOver_DecodeGetsNone(t *testing.T) {
	good := func(l leg) string { return handover(l) }
	for name, spoil := range map[string]func(leg) string{
		"direction": func(l leg) string { return ticket(l) },
		"flag as text": func(l leg) string {
			return strings.Replace(good(l), `"do_remote_prefill":true`, `"do_remote_prefill":"true"`, 1)
		},
		"port 0":        func(l leg) string { return strings.Replace(good(l), `"remote_port":5600`, `"remote_port":0`, 1) },
		"port 65536":    func(l leg) string { return strings.Replace(good(l), `"remote_port":5600`, `"remote_port":65536`, 1) },
		"port float":    func(l leg) string { return strings.Replace(good(l), `"remote_port":5600`, `"remote_port":5600.0`, 1) },
		"negative id":   func(l leg) string { return strings.Replace(good(l), "[[1,2,3]]", "[[-1]]", 1) },
		"no block list": func(l leg) string { return strings.Replace(good(l), "remote_block_ids", "blocks", 1) },
		"host":          func(l leg) string { return strings.Replace(good(l), engineHost, "a b", 1) },
		"a text":        func(leg) string { return `"params"` },
		"too large": func(l leg) string {
			return strings.Replace(good(l), "[[1,2,3]]", "[["+strings.Repeat("1,", 1<<19)+"1]]", 1)
		},
		"null": func(leg) string { return "null" },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{})
			r.prefill[0].next(func(w http.ResponseWriter, _ *http.Request, l leg) {
				answerJSON(w, `{"id":"x","kv_transfer_params":`+spoil(l)+`}`)
			})
			r.wantOK(r.turn("c", 1, true), "miss;")
			if l := r.decode[0].seen()[0]; strings.Contains(l.body, "kv_transfer_params") {
				t.Errorf("decode got %s", l.body)
			}
			r.wantOK(r.turn("c", 2, true), "miss;reason=nothing_stored") // no hand-over, no ticket
		})
	}
}

func TestPrefill_AnswerWithoutParams_DecodeGetsNone(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		r := newRig(t, setup{})
		r.prefill[0].next(replyBody("application/json", `{"id":"x","choices":[]}`))
		r.wantOK(r.turn("c", 1, stream), "miss;")
		if l := r.decode[0].seen()[0]; strings.Contains(l.body, "kv_transfer_params") {
			t.Errorf("decode got %s", l.body)
		}
	})
}

func TestLegs_RedirectsAreNotFollowed(t *testing.T) {
	r := newRig(t, setup{})
	evil := newEngine(t, 0, "evil")
	r.prefill[0].next(
		func(w http.ResponseWriter, q *http.Request, l leg) {
			w.Header().Set("Link", "</x>")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Set("Trailer", "X-Secret")
			prefills(w, q, l)
			w.Header().Set("X-Secret", "1")
		},
		status(307, "", "Location", evil.server.URL+chatPath),
	)
	r.wantOK(r.turn("c", 1, true), "miss;")
	r.wantError(r.turn("", 1, true), 502, "prefill_failed")
	r.decode[0].next(status(302, "", "Location", evil.server.URL+chatPath))
	r.wantError(r.turn("", 1, true), 502, "decode_failed")
	if got := len(evil.seen()); got != 0 {
		t.Errorf("a redirect was followed %d times", got)
	}
}
