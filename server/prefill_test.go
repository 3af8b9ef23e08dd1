package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
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
			r.wantOK(r.turn("c", n, stream), fmt.Sprintf("hit;tokens=%d;age=", 200*(n-1)))
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
		text := strings.Repeat("Say it.", 20)
		r.wantOK(ask(text), "miss;reason=first_turn")
		r.wantOK(ask(text+"Hello world\n\nAgain."), "hit;tokens=150;")
	})
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

func wantRetryAfter(t *testing.T, p reply, want string) {
	t.Helper()
	if got := p.header.Get("Retry-After"); got != want {
		t.Errorf("got Retry-After %q, want %q", got, want)
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
