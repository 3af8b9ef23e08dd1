package server_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"carryover/server"
)

// What becomes of blocks that decode has named when an answer does not reach its end.

// readUntil reads lines until one has the text, and leaves the rest unread.
func readUntil(t *testing.T, body io.Reader, text string) {
	t.Helper()
	readUntilTimes(t, body, text, 1)
}

// readUntilTimes reads lines until so many have the text, and leaves the rest unread.
func readUntilTimes(t *testing.T, body io.Reader, text string, n int) {
	t.Helper()
	lines := bufio.NewReader(body)
	for seen := 0; seen < n; {
		line, err := lines.ReadString('\n')
		if strings.Contains(line, text) {
			seen++
		}
		if err != nil {
			t.Fatalf("stream ends (%v) before %q came %d times", err, text, n)
		}
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
	resp := r.opens(l.ctx, chatPath, ask("c", true, history(1)...))
	readUntil(t, resp.Body, "[DONE]")
	l.leave()
	_ = resp.Body.Close()
	l.noticed(t)
	r.wantStored(1, "yes")
	if r.log.count(`"msg":"turn"`, `"error":""`) != 1 {
		t.Errorf("a complete turn is logged with an error: %s", r.log.end())
	}
}

// Engines and gateways print JSON as they like.
func TestAnswer_SpacesInJSONAreJSON(t *testing.T) {
	spaced := func(events ...string) []string {
		for i, e := range events {
			events[i] = strings.NewReplacer(`":`, `" : `, `,"`, ` , "`, `{"`, `{ "`).Replace(e)
		}
		return events
	}
	r := newRig(t, setup{prefills: 2, cfg: byTokens}) // another hand-over may be loaded
	r.inIDs(nil)
	for _, events := range []func(l leg) []string{
		func(leg) []string {
			return spaced(`{"error":{"message":"KV load failed","type":"x","code":500}}`, "[DONE]")
		},
		func(l leg) []string { return spaced(answerOf(l).events()...) },
	} {
		r.decode[0].next(func(w http.ResponseWriter, _ *http.Request, l leg) { say(w, events(l)...) })
	}
	r.wantOK(r.sendIDs("c", true, count(100, 200)...), "miss;")
	r.wantStored(1, "yes")
	if n := len(r.decode[0].ofClients()); n != 2 {
		t.Errorf("got %d decode legs, want 2: the error is seen", n)
	}
}

// One silent decode instance says nothing of another.
func TestSilence_IsOfOneIncarnation(t *testing.T) {
	r := newRig(t, setup{decodes: 2})
	r.decode[0].always(func(w http.ResponseWriter, _ *http.Request, l leg) {
		events := chatEvents(l)
		events[3] = chunk(l, `{}`, `"stop"`)
		say(w, events...)
	})
	for n := 1; n <= 4; n++ {
		r.turn("c", n, true)
	}
	r.wantOK(r.turn("c", 5, true), "miss;reason=engine_sends_no_params")
	r.decode[0].server.Close()
	r.wantOK(r.turn("found out", 1, true), "miss;")
	r.wantOK(r.turn("d", 2, true), "miss;reason=nothing_stored")
}

// piggyback gives a waiting release the chance to ride on a leg: two that name the same blocks are an error of every rig.
func (r *rig) piggyback() {
	r.t.Helper()
	r.wantOK(r.sendTo(textPath, `{"model":"m","prompt":"x"}`), "miss;reason=no_conversation")
}

// Whatever goes wrong elsewhere, the blocks of one answer are named by one ticket.
func TestTickets_OfTheSameBlocksDropOneAnother(t *testing.T) {
	r := newRig(t, setup{cfg: func(c *server.Config) { byTokens(c); releasing(c) }})
	r.inIDs(func(a *idAnswer) { a.params["remote_request_id"] = "the-same" })
	r.wantOK(r.sendIDs("c", true, count(100, 200)...), "miss;")
	r.wantStored(1, "yes")
	r.wantOK(r.sendIDs("d", true, count(300, 200)...), "miss;")
	r.wantStored(2, "duplicate")
	r.wantOK(r.sendIDs("c", true, continued(count(100, 200))...), "hit;")
	r.wantOK(r.sendIDs("d", true, continued(count(300, 200))...), "miss;")
	if r.log.count("name the same blocks", `"level":"ERROR"`) == 0 {
		t.Errorf("nothing is said of it; log ends with\n%s", r.log.end())
	}
}
