package server_test

import (
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

func TestDecode_IneligibleEventsAreRelayedAndLeaveNoTicket(t *testing.T) {
	r := newRig(t, setup{})
	ineligible := func(l leg) string {
		return ": comment\n\nretry: 3\n\nevent: x\nid: 7\ndata: not json\n\n" + "foo: bar\n\n" + frames(chatEvents(l)[1:3]...)
	}
	r.decode[0].next(func(w http.ResponseWriter, _ *http.Request, l leg) {
		sayHeaders(w)
		_, _ = io.WriteString(w, ineligible(l))
		say(w, chatEvents(l)[3:]...)
	})
	p := r.turn("c", 1, true)
	r.wantOK(p, "miss;")
	if want := ineligible(r.decode[0].seen()[0]); !strings.HasPrefix(p.body, want) || r.store.Len() != 0 {
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
		r.until(func() bool { return r.lines() == 2 })
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
