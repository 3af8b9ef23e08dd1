package server_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"testing"
)

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
