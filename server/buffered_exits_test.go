package server_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server"
)

func TestBuffered_OnlyWhereATicketCanComeOfIt(t *testing.T) {
	for name, row := range map[string]struct {
		request string
		header  []string
		prefill behaviour
		auto    bool
		whole   bool
	}{
		"conversation":    {request: plus(ask("c", true, "q"), `,"stream_options":{"include_usage":true}`), whole: true},
		"no conversation": {request: ask("", true, "q")},
		"off":             {request: ask("c", true, "q"), header: []string{"X-KV-Reuse", "off"}},
		"several choices": {request: plus(ask("c", true, "q"), `,"n":2`)},
		"ineligible":      {request: plus(ask("c", true, "q"), `,"echo":true`)},
		"no hand-over":    {request: ask("c", true, "q"), prefill: replyBody("application/json", `{"id":"x"}`)},
		"no proof":        {request: ask("c", true, "q"), auto: true}, // the scripted engine does not know ids
		"not streamed":    {request: ask("c", false, "q"), whole: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{cfg: func(c *server.Config) {
				buffering(c)
				if row.auto {
					c.Proof = server.ProofAuto
				}
			}})
			if row.auto { // its first legs are the probes
				r.prefill[0].next(status(500, "no"))
				r.decode[0].next(status(500, "no"))
			}
			if row.prefill != nil {
				r.prefill[0].next(row.prefill)
			}
			p := r.send(row.request, row.header...)
			r.wantOK(p, "")
			legs := r.decode[0].seen()
			last := legs[len(legs)-1]
			if last.streams() == row.whole {
				t.Errorf("got decode leg %s, want whole: %v", last.body, row.whole)
			}
			if row.whole && strings.Contains(last.body, "stream_options") {
				t.Errorf("got %s, want no stream_options, which vLLM refuses without stream", last.body)
			}
		})
	}
}

func TestBuffered_FailsWithAStatus(t *testing.T) {
	for name, row := range map[string]struct {
		fails  behaviour
		status int
		code   string
		legs   int
	}{
		"400":                {status(400, "bad"), 400, "invalid_request", 1},
		"KV load fails":      {status(500, "Internal server error"), 502, "decode_failed", 2},
		"hang-up":            {hangUp, 502, "decode_failed", 2},
		"breaks off":         {raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{\"id\""), 502, "decode_failed", 2},
		"no JSON":            {replyBody("application/json", `{"id":`), 502, "bad_decode_answer", 1},
		"an error":           {replyBody("application/json", `{"error":{"message":"x"},"choices":[{"message":{},"finish_reason":"stop"}]}`), 502, "bad_decode_answer", 1},
		"no choice":          {replyBody("application/json", `{"id":"x","choices":[]}`), 502, "bad_decode_answer", 1},
		"two choices":        {twoChoices, 502, "bad_decode_answer", 1},
		"unfinished":         {replyBody("application/json", `{"choices":[{"message":{"content":"x"},"finish_reason":null}]}`), 502, "bad_decode_answer", 1},
		"not of this API":    {textForChat, 502, "bad_decode_answer", 1},
		"not even an object": {replyBody("application/json", `[1]`), 502, "bad_decode_answer", 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{cfg: buffering})
			r.decode[0].always(row.fails)
			r.wantError(r.turn("c", 1, true), row.status, row.code)
			if n := len(r.decode[0].seen()); n != row.legs || r.store.Len() != 0 {
				t.Errorf("got %d decode legs and %d conversations, want %d and no ticket", n, r.store.Len(), row.legs)
			}
		})
	}
}

// twoChoices is an answer that was not asked for, with params.
func twoChoices(w http.ResponseWriter, _ *http.Request, l leg) {
	choice := `{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}`
	answerJSON(w, `{"id":"chatcmpl-`+l.id()+`","choices":[`+choice+`,`+choice+`],"kv_transfer_params":`+ticket(l)+`}`)
}

// textForChat is an answer of the other API, with params.
func textForChat(w http.ResponseWriter, _ *http.Request, l leg) {
	answerJSON(w, `{"id":"chatcmpl-`+l.id()+`","choices":[{"index":0,"text":"x","finish_reason":"stop"}],"kv_transfer_params":`+ticket(l)+`}`)
}

func TestBuffered_RefusedAnswerLeavesNoTicket(t *testing.T) {
	r := newRig(t, setup{cfg: buffering})
	r.decode[0].next(func(w http.ResponseWriter, _ *http.Request, l leg) {
		answerJSON(w, `{"id":"cmpl-`+l.id()+`","choices":[{"index":0,"text":7,"finish_reason":"stop","stop_reason":null}],"kv_transfer_params":`+ticket(l)+`}`)
	})
	r.wantError(r.sendTo(textPath, `{"model":"m","prompt":"q","stream":true,"conversation_id":"c"}`), 502, "bad_decode_answer")
	if r.store.Len() != 0 {
		t.Error("an answer that was not shown left a ticket")
	}
}

func TestBuffered_RestartedLegIsBufferedToo(t *testing.T) {
	r := newRig(t, setup{cfg: buffering})
	r.decode[0].next(status(500, "Internal server error"))
	p := r.turn("c", 1, true)
	r.wantOK(p, "miss;reason=first_turn")
	if said := listen(t, p); said.Content != "Hello world" || said.Finish != "stop" {
		t.Errorf("got %+v, want Hello world", said)
	}
	r.wantOK(r.turn("c", 2, true), "hit;")
}

// An engine that streams all the same is relayed.
func TestBuffered_StreamedAnswerIsRelayed(t *testing.T) {
	r := newRig(t, setup{cfg: buffering})
	r.decode[0].next(func(w http.ResponseWriter, _ *http.Request, l leg) { say(w, chatEvents(l)...) })
	p := r.turn("c", 1, true)
	r.wantOK(p, "miss;")
	if want := chatBytes(r.decode[0].seen()[0]); p.body != want {
		t.Errorf("got\n%s\nwant\n%s", p.body, want)
	}
}

func TestBuffered_PutIsDoneBeforeTheClientSeesAnything(t *testing.T) {
	putting, gate := make(chan struct{}), make(chan struct{})
	seam := &storeSeam{put: func(context.Context) (convcache.Outcome, bool) {
		close(putting)
		<-gate
		return 0, false
	}}
	r := newRig(t, setup{
		cfg:  func(c *server.Config) { buffering(c); c.StoreTimeout = patience },
		deps: func(d *server.Deps) { seam.Store, d.Store = d.Store, seam },
	})
	headers := make(chan *http.Response, 1)
	go func() {
		resp, err := r.open(context.Background(), http.MethodPost, chatPath, strings.NewReader(ask("c", true, history(1)...)))
		if err != nil {
			t.Error(err)
		}
		headers <- resp
	}()
	<-putting
	var resp *http.Response
	select {
	case resp = <-headers:
		t.Error("the client has some of the answer before the ticket is stored")
	case <-time.After(50 * time.Millisecond): // it would be there in less than one
	}
	close(gate)
	if resp == nil {
		resp = <-headers
	}
	r.wantOK(r.rest(resp), "miss;")
	seam.put = nil
	r.wantOK(r.turn("c", 2, true), "hit;")
}

func TestBuffered_ClientLeavesBeforeTheAnswer(t *testing.T) {
	t.Parallel() // the leg has ten seconds
	l, gate := newLeaver(t), make(chan struct{})
	r := newRig(t, setup{cfg: buffering, front: contexts(l.arrived)})
	r.decode[0].next(waits(gate, func(w http.ResponseWriter, q *http.Request, l leg) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"id":`))
		_ = http.NewResponseController(w).Flush()
		silent(w, q, l) // until the leg is cancelled
	}))
	done := make(chan reply, 1)
	go func() { done <- r.do(l.ctx, http.MethodPost, chatPath, strings.NewReader(ask("c", true, "q"))) }()
	r.decode[0].await(1)
	l.leave()
	l.noticed(t)
	<-done
	close(gate)
	r.decode[0].awaitEnd(1)
	r.until(func() bool { return r.log.count(`"msg":"turn"`, `"status":499`) == 1 })
	if r.store.Len() != 0 {
		t.Error("an answer that was not shown left a ticket")
	}
}
