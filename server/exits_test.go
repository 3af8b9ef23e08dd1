package server_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
)

// What becomes of blocks that decode has named when an answer does not reach its end.

// readUntil reads events until one contains the text, and returns the rest unread.
func readUntil(t *testing.T, body io.Reader, text string) {
	t.Helper()
	lines := bufio.NewReader(body)
	for {
		line, err := lines.ReadString('\n')
		if strings.Contains(line, text) {
			return
		}
		if err != nil {
			t.Fatalf("stream ends (%v) before %q", err, text)
		}
	}
}

// toFinish is an engine that streams its answer up to the finish, with the params, and then waits.
func toFinish(gate <-chan struct{}, end func(w http.ResponseWriter)) behaviour {
	return func(w http.ResponseWriter, r *http.Request, l leg) {
		events := chatEvents(l)
		say(w, events[:len(events)-1]...)
		waits(gate, func(w http.ResponseWriter, _ *http.Request, _ leg) { end(w) })(w, r, l)
	}
}

func TestExit_WholeAnswerIsNestedTooDeeply_BlocksAreReleased(t *testing.T) {
	r := newRig(t, setup{cfg: releasing})
	r.shot() // the instances have exchanged KV, and left something
	r.decode[0].next(func(w http.ResponseWriter, _ *http.Request, l leg) {
		answerJSON(w, wholeAnswer(l)+`,"a":`+levels(tooDeep)+`,"kv_transfer_params":`+ticket(l)+`}`)
	})
	r.wantError(r.turn("c", 1, false), 502, "bad_decode_answer")
	r.shot()
	r.wantCarried(2, left(r.decode[0].seen()[1]))
}

// The OpenAI SDKs close the connection when they have read [DONE].
func TestExit_ClientClosesAfterDone_IsACompleteTurn(t *testing.T) {
	l := newLeaver(t)
	r := newRig(t, setup{front: contexts(l.arrived)})
	r.decode[0].next(func(w http.ResponseWriter, req *http.Request, lg leg) {
		decodes(w, req, lg)
		<-req.Context().Done() // the connection stays open behind [DONE]
	})
	resp, err := r.open(l.ctx, http.MethodPost, chatPath, strings.NewReader(ask("c", true, history(1)...)))
	if err != nil {
		t.Fatal(err)
	}
	readUntil(t, resp.Body, "[DONE]")
	l.leave()
	_ = resp.Body.Close()
	l.noticed(t)
	r.wantStored(1, "yes")
	if n := r.log.count(`"msg":"turn"`) - r.log.count(`"msg":"turn"`, `"error":""`); n != 0 {
		t.Errorf("a complete turn is logged with an error: %s", r.log.end())
	}
}

// Engines and gateways print JSON as they like.
func TestAnswer_SpacesInJSONAreJSON(t *testing.T) {
	spaced := func(s string) string {
		return strings.NewReplacer(`":`, `" : `, `,"`, ` , "`, `{"`, `{ "`).Replace(s)
	}
	t.Run("a ticket comes of it", func(t *testing.T) {
		r := newRig(t, setup{cfg: byTokens})
		r.prefill[0].always(prefillsIDs)
		r.decode[0].always(func(w http.ResponseWriter, _ *http.Request, l leg) {
			events := answerOf(l).events()
			for i, e := range events {
				events[i] = spaced(e)
			}
			say(w, events...)
		})
		r.wantOK(r.sendIDs("c", true, count(100, 200)...), "miss;")
		r.wantStored(1, "yes")
	})
	t.Run("an error is seen", func(t *testing.T) {
		r := newRig(t, setup{})
		r.decode[0].next(func(w http.ResponseWriter, _ *http.Request, l leg) {
			say(w, chatEvents(l)[0], `{ "error" : { "message" : "KV load failed", "type" : "x", "code" : 500 } }`, "[DONE]")
		})
		r.wantOK(r.turn("c", 1, true), "miss;") // retried
		if n := len(r.decode[0].ofClients()); n != 2 {
			t.Errorf("got %d decode legs, want 2", n)
		}
	})
}

// One silent decode instance says nothing of another.
func TestSilence_IsOfOneIncarnation(t *testing.T) {
	r := newRig(t, setup{decodes: 2})
	unresponsive := func(w http.ResponseWriter, _ *http.Request, l leg) {
		events := chatEvents(l)
		events[3] = chunk(l, `{}`, `"stop"`)
		say(w, events...)
	}
	r.decode[0].always(unresponsive)
	for n := 1; n <= 4; n++ {
		r.turn("c", n, true)
	}
	r.wantOK(r.turn("c", 5, true), "miss;reason=engine_sends_no_params")
	r.decode[0].server.Close()
	r.wantOK(r.turn("found out", 1, true), "miss;")
	r.wantOK(r.turn("d", 2, true), "miss;reason=nothing_stored")
}
