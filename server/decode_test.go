package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/server"
)

// cutOff checks that a client saw an abnormal end, and no [DONE].
func cutOff(t *testing.T, p reply) {
	t.Helper()
	if !errors.Is(p.err, io.ErrUnexpectedEOF) {
		t.Errorf("got end %v after %q, want unexpected EOF", p.err, p.body)
	}
	if strings.Contains(p.body, "[DONE]") {
		t.Errorf("got %q, want no [DONE]", p.body)
	}
}

// lastError takes the error event off the end of a stream and checks its code.
func lastError(t *testing.T, body, code string) (rest string) {
	t.Helper()
	at := strings.LastIndex(body, `data: {"error":`)
	if at < 0 || !strings.HasSuffix(body, "\n\n") {
		t.Fatalf("got %q, want an error event at the end", body)
	}
	event := strings.TrimSuffix(strings.TrimPrefix(body[at:], "data: "), "\n\n")
	if e := parseError(t, event); e.Code != code {
		t.Errorf("got error event %s, want code %s", event, code)
	}
	return body[:at]
}

func TestDecode_Refused_SameHandOverElsewhere(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		r := newRig(t, setup{deadDecodes: 2})
		r.wantOK(r.turn("c", 1, stream), "miss;")
		if n := len(r.prefill[0].seen()); n != 1 {
			t.Errorf("got %d prefill legs, want 1: the hand-over is good for any decode", n)
		}
		want := "chatcmpl-" + r.prefill[0].seen()[0].id()
		if got := r.decode[0].seen()[0].params()["remote_request_id"]; got != want {
			t.Errorf("got hand-over %v, want %s", got, want)
		}
	})
}

func TestDecode_RefusedEverywhereIsAnError(t *testing.T) {
	for _, dead := range []int{-1, -5} {
		r := newRig(t, setup{deadDecodes: dead})
		p := r.turn("c", 1, true)
		r.wantError(p, 503, "decode_unavailable")
		wantRetryAfter(t, p, "1")
	}
}

func TestDecode_HandOverBeyondItsBudgetIsNotSent(t *testing.T) {
	r := newRig(t, setup{deadDecodes: 1, cfg: func(c *server.Config) { c.HandoverBudget = time.Nanosecond }})
	r.wantError(r.turn("c", 1, true), 503, "decode_unavailable")
	if n := len(r.decode[0].seen()); n != 0 {
		t.Errorf("a stale hand-over reached decode %d times", n)
	}
}

func TestDecode_FailsBeforeItsBody(t *testing.T) {
	for _, row := range []struct {
		name   string
		fails  behaviour
		status int
		code   string
		legs   int
	}{
		{"400", status(400, "bad"), 400, "invalid_request", 1},
		{"401", status(401, "bad"), 502, "upstream_auth", 1},
		{"429", status(429, "bad"), 429, "rate_limited", 1},
		{"500", status(500, "bad"), 502, "decode_failed", 2},
		{"502", status(502, "bad"), 502, "decode_failed", 2},
		{"503", status(503, "bad"), 503, "decode_failed", 2},
		{"hang-up", hangUp, 502, "decode_failed", 2},
		{"content type", replyBody("text/html", "x"), 502, "bad_decode_answer", 1},
		{"gzip", replyBody("application/json", "x", "Content-Encoding", "gzip"), 502, "bad_decode_answer", 1},
		{"bad framing", raw("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), 502, "decode_failed", 2},
		{"no HTTP", raw("hello\r\n\r\n"), 502, "decode_failed", 2},
		{"huge header", raw("HTTP/1.1 200 OK\r\nX-Y: " + strings.Repeat("y", 80<<10) + "\r\n\r\n"), 502, "decode_failed", 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, setup{})
			r.decode[0].always(row.fails)
			r.wantError(r.turn("c", 1, true), row.status, row.code)
			prefill, decode := r.prefill[0].seen(), r.decode[0].seen()
			if len(decode) != row.legs || len(prefill) != row.legs {
				t.Errorf("got %d prefill and %d decode legs, want %d of each", len(prefill), len(decode), row.legs)
			}
			if row.legs == 2 && (decode[0].id() == decode[1].id() || prefill[1].id() != decode[1].id()) {
				t.Error("the restart has no request id of its own, or not the same for both legs")
			}
		})
	}
}

func TestDecode_HandOverIsNeverOfferedToASecondInstance(t *testing.T) {
	r := newRig(t, setup{decodes: 2})
	r.decode[0].always(hangUp)
	r.wantError(r.turn("c", 1, true), 502, "decode_failed") // checkLegs counts where each hand-over went
	if n := len(r.decode[1].seen()); n != 0 {
		t.Errorf("the second decode instance saw %d legs of what the first may have read", n)
	}
}

func TestRetry_AfterDecodeFailedHasNoTicket(t *testing.T) {
	r := newRig(t, setup{})
	r.wantOK(r.turn("c", 1, true), "miss;")
	r.decode[0].next(status(500, "KV load"))
	r.wantOK(r.turn("c", 2, true), "miss;reason=retried_without_ticket")
	if legs := r.prefill[0].seen(); len(legs) != 3 || legs[1].ticket() == "" || legs[2].ticket() != "" {
		t.Errorf("got %d prefill legs, want the first of the turn with a ticket and the second without", len(legs))
	}
	r.wantOK(r.turn("c", 3, true), "hit;")
}

// Decode alone is bounded by itself and needs none.
func TestRetry_WithoutBudgetThereIsNone(t *testing.T) {
	r := newRig(t, setup{})
	r.server.SpendRetries()
	r.prefill[0].next(status(503, "busy"))
	p := r.turn("c", 1, true)
	r.wantOK(p, "miss;reason=bypass")
	r.wantPath(p, "decode_only;reason=prefill_failed;tokens=2")
	if n := len(r.prefill[0].seen()); n != 1 {
		t.Errorf("got %d prefill legs, want 1: the retry budget is spent", n)
	}
	r.decode[0].next(status(503, "busy"))
	r.wantError(r.turn("c", 1, true), 503, "decode_failed")
	if n := len(r.decode[0].seen()); n != 2 {
		t.Errorf("got %d decode legs, want one for each turn", n)
	}
}

func TestRetry_NoneBeyondTheFirstByteTimeout(t *testing.T) {
	r := newRig(t, setup{cfg: func(c *server.Config) { c.FirstByteTimeout = time.Nanosecond; c.ForwardAuthorization = true }})
	r.prefill[0].next(status(503, "busy"))
	r.wantError(r.turn("c", 1, true), 503, "prefill_failed")
	if n := len(r.prefill[0].seen()); n != 1 {
		t.Errorf("got %d prefill legs, want 1", n)
	}
}

// roleOnly is vLLM's first chunk, which says nothing of whether the KV could be loaded.
func roleOnly(l leg) []string { return chatEvents(l)[:1] }

func nothing(leg) []string { return nil }

// kvFails is what vLLM streams when it could not load the KV (recording 08).
func kvFails(w http.ResponseWriter, _ *http.Request, l leg) {
	say(w, append(roleOnly(l), `{"error":{"message":"Internal server error","type":"InternalServerError","param":null,"code":500}}`, "[DONE]")...)
}

func TestDecode_FailsBeforeTheFirstContent_RestartedOnce(t *testing.T) {
	for name, fails := range map[string]behaviour{
		"before first event":       breaks(nothing, ""),
		"inside first event":       breaks(nothing, `data: {"id":"chatcmpl-`),
		"after role only":          breaks(roleOnly, ""),
		"after role only mid-line": breaks(roleOnly, "data: {\"choices\":[\xf0\x9f"),
		"KV load fails":            kvFails,
		"error as first event":     func(w http.ResponseWriter, _ *http.Request, _ leg) { say(w, `{"error":{"message":"x"}}`, "[DONE]") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{})
			r.decode[0].next(fails)
			p := r.turn("c", 1, true)
			r.wantOK(p, "miss;reason=first_turn")
			legs := r.decode[0].seen()
			if len(legs) != 2 {
				t.Fatalf("got %d decode legs, want 2", len(legs))
			}
			if want := chatBytes(legs[1]); p.body != want {
				t.Errorf("got\n%s\nwant\n%s", p.body, want)
			}
			r.wantOK(r.turn("c", 2, true), "hit;")
		})
	}
}

func TestDecode_SecondKVLoadFailurePassesThrough(t *testing.T) {
	r := newRig(t, setup{})
	r.decode[0].next(kvFails, kvFails)
	p := r.turn("c", 1, true)
	r.wantOK(p, "miss;reason=first_turn")
	legs := r.decode[0].seen()
	if want := frames(append(roleOnly(legs[1]), `{"error":{"message":"Internal server error","type":"InternalServerError","param":null,"code":500}}`, "[DONE]")...); p.body != want {
		t.Errorf("got\n%s\nwant vLLM's own words\n%s", p.body, want)
	}
	if len(legs) != 2 || r.store.Len() != 0 {
		t.Errorf("got %d decode legs and %d conversations, want 2 and no ticket", len(legs), r.store.Len())
	}
}

func TestDecode_WholeAnswerFails_RestartedOnce(t *testing.T) {
	r := newRig(t, setup{})
	r.decode[0].next(status(500, "Internal server error"))
	r.wantOK(r.turn("c", 1, false), "miss;reason=first_turn")
}

func TestDecode_SecondBrokenStreamIsAnError(t *testing.T) {
	r := newRig(t, setup{})
	r.decode[0].always(breaks(roleOnly, ""))
	r.wantError(r.turn("c", 1, true), 502, "decode_failed")
	if n := len(r.decode[0].seen()); n != 2 {
		t.Errorf("got %d decode legs, want 2", n)
	}
}

func TestDecode_WithoutAFirstByteTimesOut(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, stream bool) {
		r := newRig(t, setup{cfg: func(c *server.Config) { c.FirstByteTimeout = soonOver }})
		r.decode[0].next(silent, func(w http.ResponseWriter, q *http.Request, l leg) { sayHeaders(w); silent(w, q, l) })
		r.wantError(r.turn("c", 1, stream), 504, "decode_timeout")
		r.wantError(r.turn("c", 1, stream), 504, "decode_timeout")
		r.decode[0].awaitEnd(2)
	})
}

// A connection that dies when it is used again must not make the transport repeat a leg that was sent.
func TestLegs_TransportRepeatsNothing(t *testing.T) {
	r := newRig(t, setup{})
	r.wantOK(r.send(ask("", false, "q"), "Idempotency-Key", "k", "X-Idempotency-Key", "k"), "miss;")
	r.prefill[0].next(hangUp, hangUp)
	r.wantPath(r.send(ask("", false, "q"), "Idempotency-Key", "k", "X-Idempotency-Key", "k"), "decode_only;reason=prefill_failed;tokens=0")
	if n := len(r.prefill[0].seen()); n != 3 { // one, then one and its one retry
		t.Errorf("got %d prefill legs, want 3", n)
	}
}

func TestModels_OfTheFirstEngineThatAnswers(t *testing.T) {
	r := newRig(t, setup{deadPrefills: 1, deadDecodes: 1})
	if p := r.get("/v1/models"); p.status != 200 || !strings.Contains(p.body, "max_model_len") {
		t.Errorf("got %d %q, want the list of the first engine that answers", p.status, p.body)
	}
	// The engines judge a client's credential all alike.
	judged := newRig(t, setup{decodes: 2, cfg: forwards})
	judged.decode[0].models = status(401, "no")
	judged.decode[1].models = func(http.ResponseWriter, *http.Request, leg) { t.Error("a second engine was asked") }
	judged.wantError(judged.get("/v1/models"), 502, "upstream_auth")
	dead := newRig(t, setup{deadPrefills: -1, deadDecodes: -1})
	dead.wantError(dead.get("/v1/models"), 503, "prefill_unavailable")
	if p := dead.do(context.Background(), http.MethodGet, "/readyz", nil); p.status != 503 && p.status != 200 {
		t.Errorf("got %d", p.status)
	}
}
