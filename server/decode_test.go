package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
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
		{"content type", body("text/html", "x"), 502, "bad_decode_answer", 1},
		{"gzip", body("application/json", "x", "Content-Encoding", "gzip"), 502, "bad_decode_answer", 1},
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

func TestRetry_WithoutBudgetThereIsNone(t *testing.T) {
	r := newRig(t, setup{})
	r.server.SpendRetries()
	r.prefill[0].next(status(503, "busy"))
	r.wantError(r.turn("c", 1, true), 503, "prefill_failed")
	if n := len(r.prefill[0].seen()); n != 1 {
		t.Errorf("got %d prefill legs, want 1: the retry budget is spent", n)
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

func TestDecode_DiesInsideItsStream_ErrorEventAndAbort(t *testing.T) {
	two := func(l leg) []string { return chatEvents(l)[:2] }
	for name, rest := range map[string]string{
		"between events": "", "mid-line": `data: {"id":"chatcm`, "mid-UTF-8": "data: \xf0\x9f\x98", "after the line": "data: {}\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{})
			r.decode[0].next(breaks(two, rest))
			p := r.turn("c", 1, true)
			cutOff(t, p)
			r.wantSealed(p)
			if got, want := lastError(t, p.body, "decode_failed"), frames(two(r.decode[0].seen()[0])...); got != want {
				t.Errorf("got %q, want the complete events %q", got, want)
			}
			if n := len(r.decode[0].seen()); n != 1 || r.store.Len() != 0 {
				t.Errorf("got %d decode legs and %d conversations, want one leg and no ticket", n, r.store.Len())
			}
		})
	}
}

func TestDecode_ErrorEventInsideItsStreamPassesThrough(t *testing.T) {
	r := newRig(t, setup{})
	failing := func(l leg) []string { return append(chatEvents(l)[:2], `{"error":{"message":"later"}}`, "[DONE]") }
	r.decode[0].next(func(w http.ResponseWriter, _ *http.Request, l leg) { say(w, failing(l)...) })
	p := r.turn("c", 1, true)
	r.wantOK(p, "miss;reason=first_turn")
	if want := frames(failing(r.decode[0].seen()[0])...); p.body != want || r.store.Len() != 0 {
		t.Errorf("got %q, %d conversations; want it verbatim and no ticket", p.body, r.store.Len())
	}
}

func TestDecode_WholeAnswerBreaksOff(t *testing.T) {
	r := newRig(t, setup{})
	short := raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{\"id\":")
	r.decode[0].next(short)
	r.wantOK(r.turn("c", 1, false), "miss;reason=first_turn")
	r.decode[0].next(short, short)
	r.wantError(r.turn("c", 2, false), 502, "decode_failed")
}

func TestDecode_NoDoneIsInvented(t *testing.T) {
	for name, n := range map[string]int{"nothing": 0, "role only": 1, "some": 2, "all but DONE": 4} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{})
			r.decode[0].next(func(w http.ResponseWriter, _ *http.Request, l leg) { sayHeaders(w); say(w, chatEvents(l)[:n]...) })
			p := r.turn("c", 1, true)
			r.wantOK(p, "miss;")
			if want := strings.TrimSuffix(strings.Join(strings.SplitAfter(chatBytes(r.decode[0].seen()[0]), "\n\n")[:n], ""), ""); p.body != want {
				t.Errorf("got %q, want %q", p.body, want)
			}
			if r.store.Len() != 0 {
				t.Error("a ticket was kept of a stream without [DONE]")
			}
		})
	}
}

func TestDecode_BrokenFramingNeverLooksComplete(t *testing.T) {
	event := func(l leg) string { return frames(chatEvents(l)[1]) }
	for name, answer := range map[string]func(l leg) string{
		"chunk size": func(l leg) string {
			return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\nzz\r\n", len(event(l)), event(l))
		},
		"short length": func(l leg) string {
			return "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 99999\r\n\r\n" + event(l)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{})
			r.decode[0].next(func(w http.ResponseWriter, q *http.Request, l leg) { raw(answer(l))(w, q, l) })
			p := r.turn("c", 1, true)
			cutOff(t, p)
			if got := lastError(t, p.body, "decode_failed"); got != event(r.decode[0].seen()[0]) {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestDecode_SilentStreamIsCut(t *testing.T) {
	r := newRig(t, setup{cfg: func(c *server.Config) { c.IdleTimeout = 100 * time.Millisecond }})
	r.decode[0].next(func(w http.ResponseWriter, q *http.Request, l leg) {
		say(w, chatEvents(l)[:2]...)
		silent(w, q, l)
	})
	p := r.turn("c", 1, true)
	cutOff(t, p)
	lastError(t, p.body, "stream_idle_timeout")
	r.decode[0].awaitEnd(1)
}

func TestDecode_WithoutAFirstByteTimesOut(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		r := newRig(t, setup{cfg: func(c *server.Config) { c.FirstByteTimeout = 150 * time.Millisecond }})
		r.decode[0].next(silent, func(w http.ResponseWriter, q *http.Request, l leg) { sayHeaders(w); silent(w, q, l) })
		r.wantError(r.turn("c", 1, stream), 504, "decode_timeout")
		r.wantError(r.turn("c", 1, stream), 504, "decode_timeout")
		r.decode[0].awaitEnd(2)
	})
}

func TestDecode_OddEventsAreRelayedAndLeaveNoTicket(t *testing.T) {
	r := newRig(t, setup{})
	odd := func(l leg) string {
		return ": comment\n\nretry: 3\n\nevent: x\nid: 7\ndata: not json\n\n" + "foo: bar\n\n" + frames(chatEvents(l)[1:3]...)
	}
	r.decode[0].next(func(w http.ResponseWriter, _ *http.Request, l leg) {
		sayHeaders(w)
		_, _ = io.WriteString(w, odd(l))
		say(w, chatEvents(l)[3:]...)
	})
	p := r.turn("c", 1, true)
	r.wantOK(p, "miss;")
	if want := odd(r.decode[0].seen()[0]); !strings.HasPrefix(p.body, want) || r.store.Len() != 0 {
		t.Errorf("got %q with %d conversations, want %q first and no ticket", p.body, r.store.Len(), want)
	}
}

func TestDecode_DiesInsideAnOversizeEvent_NoErrorEvent(t *testing.T) {
	r := newRig(t, setup{})
	r.decode[0].next(breaks(nothing, "data: "+strings.Repeat("x", 2<<20)))
	p := r.turn("c", 1, true)
	cutOff(t, p)
	if strings.Contains(p.body, "error") {
		t.Error("an error event was put inside another event")
	}
}

func TestDecode_LastParamsWin(t *testing.T) {
	r := newRig(t, setup{})
	r.decode[0].next(func(w http.ResponseWriter, _ *http.Request, l leg) {
		e := chatEvents(l)
		with := func(event, params string) string {
			return strings.TrimSuffix(event, "}") + `,"kv_transfer_params":` + params + "}"
		}
		say(w, e[0], with(e[1], strings.ReplaceAll(ticket(l), "chatcmpl-", "early-")), e[2], e[3], with(`{"id":"chatcmpl-`+l.id()+`","choices":[]}`, "null"), "[DONE]")
	})
	p := r.turn("c", 1, true)
	r.wantOK(p, "miss;")
	if want := chatBytes(r.decode[0].seen()[0]); p.body != want {
		t.Errorf("got %q, want %q: params cut out, an event of nothing else dropped", p.body, want)
	}
	r.wantOK(r.turn("c", 2, true), "hit;")
	if got := r.prefill[0].seen()[1].ticket(); !strings.HasPrefix(got, "chatcmpl-") {
		t.Errorf("got ticket %q, want the last", got)
	}
}

func TestDecode_DiesAfterItsParams_NoTicket(t *testing.T) {
	r := newRig(t, setup{})
	r.decode[0].next(breaks(func(l leg) []string { return chatEvents(l)[:4] }, ""))
	cutOff(t, r.turn("c", 1, true))
	if r.store.Len() != 0 {
		t.Error("a ticket was kept of a stream that broke off")
	}
}

func TestDecode_ForeignResponseIDLeavesNoTicket(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		r := newRig(t, setup{})
		r.decode[0].next(func(w http.ResponseWriter, q *http.Request, l leg) {
			l.header.Set("X-Request-Id", "somebody-else")
			decodes(w, q, l)
		})
		r.wantOK(r.turn("c", 1, stream), "miss;")
		r.wantOK(r.turn("c", 2, stream), "miss;reason=nothing_stored")
		if n := r.log.count(`"stored":"ineligible_response_id"`); n != 1 {
			t.Errorf("got %d turns that say why, want 1", n)
		}
	})
}

func TestDecode_SecondAnswerOnAConnectionReachesNoOtherTurn(t *testing.T) {
	log.SetOutput(io.Discard) // net/http reports the poison there
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	r := newRig(t, setup{})
	// Two answers at once on a connection that stays open: the second would be the next tenant's.
	r.decode[0].always(func(w http.ResponseWriter, _ *http.Request, l leg) {
		one := wholeAnswer(l) + "}"
		answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(one), one)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, answer+strings.ReplaceAll(answer, "Hello", "CANRY"))
	})
	for i := range 20 {
		p := r.send(ask("", false, "q"))
		if strings.Contains(p.body, "CANRY") {
			t.Fatalf("turn %d got the answer of another: %q to %s", i, p.body, p.header.Get("X-Request-Id"))
		}
		r.wantOK(p, "miss;")
	}
	if n := len(r.decode[0].seen()); n < 20 {
		t.Errorf("got %d decode legs for 20 turns", n)
	}
}

// A connection that dies when it is used again must not make the transport repeat a leg that was sent.
func TestLegs_TransportRepeatsNothing(t *testing.T) {
	r := newRig(t, setup{})
	r.wantOK(r.send(ask("", false, "q"), "Idempotency-Key", "k", "X-Idempotency-Key", "k"), "miss;")
	r.prefill[0].next(hangUp, hangUp)
	r.wantError(r.send(ask("", false, "q"), "Idempotency-Key", "k", "X-Idempotency-Key", "k"), 502, "prefill_failed")
	if n := len(r.prefill[0].seen()); n != 3 { // one, then one and its one retry
		t.Errorf("got %d prefill legs, want 3", n)
	}
}

func TestModels_OfTheFirstEngineThatAnswers(t *testing.T) {
	r := newRig(t, setup{deadPrefills: 1, deadDecodes: 1})
	if p := r.get("/v1/models"); p.status != 200 || !strings.Contains(p.body, "max_model_len") {
		t.Errorf("got %d %q, want the list of the first engine that answers", p.status, p.body)
	}
	dead := newRig(t, setup{deadPrefills: -1, deadDecodes: -1})
	dead.wantError(dead.get("/v1/models"), 503, "prefill_unavailable")
	if p := dead.do(context.Background(), http.MethodGet, "/readyz", nil); p.status != 503 && p.status != 200 {
		t.Errorf("got %d", p.status)
	}
}
