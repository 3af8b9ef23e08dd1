package server_test

import (
	"net/http"
	"strings"
	"testing"
)

// bottomless is JSON that a reader without a bound follows until its stack is full,
// which ends a Go process.
var bottomless = strings.Repeat("[", 12<<20)

// tooDeep is valid JSON of one level more than is read.
const tooDeep = 65

func levels(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

// What an engine sends may be nested without end wherever it is read, and costs no more than what it would have told.
func TestNesting_AnswersOfEngines(t *testing.T) {
	tooDeepIn := func(before string) []string {
		return []string{bottomless, before + bottomless, before + levels(tooDeep-1) + "}"}
	}
	for _, deep := range tooDeepIn(`{"id":"x","a":`) { // prefill's gives no hand-over
		r := newRig(t, setup{})
		r.prefill[0].next(replyBody("application/json", deep))
		r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
		if l := r.decode[0].seen()[0]; l.params() != nil || r.store.Len() != 0 {
			t.Errorf("%.80s: %d conversations, decode got %s", deep, r.store.Len(), l.body)
		}
	}
	for _, deep := range tooDeepIn(`{"id":"chatcmpl-x","choices":[{"index":0,"finish_reason":"stop"}],"usage":`) { // a whole one leaves no ticket
		r := newRig(t, setup{})
		r.decode[0].next(replyBody("application/json", deep))
		r.wantError(r.turn("c", 1, false), 502, "bad_decode_answer")
		if r.store.Len() != 0 {
			t.Errorf("%.80s: a ticket was kept", deep)
		}
	}
	for _, deep := range tooDeepIn(`{"tokens":[1],"a":`) {
		r := newRig(t, setup{})
		r.prefill[0].tokenize = func(string) string { return deep }
		r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
		r.wantOK(r.turn("c", 2, true), "miss;reason=tokenize_failed")
	}
	for _, deep := range append(tooDeepIn(`{"error":{"message":"deep","a":`), bottomless[:60<<10]) { // an error's message is not read
		r := newRig(t, setup{})
		fails := func(w http.ResponseWriter, q *http.Request, l leg) {
			w.WriteHeader(http.StatusBadRequest)
			replyBody("application/json", deep)(w, q, l)
		}
		r.decode[0].always(fails)
		for range 2 {
			if e := r.wantError(r.turn("c", 1, true), 400, "invalid_request"); strings.Contains(e.Message, "[") || strings.Contains(e.Message, "deep") {
				t.Errorf("%.80s: got message %.80q", deep, e.Message)
			}
			r.prefill[0].always(fails)
		}
	}
}

// An event that is too deep to be read is relayed. It leaves no ticket if it could have been read otherwise, and loses kv_transfer_params and nothing else.
func TestNesting_Events(t *testing.T) {
	const deeper = `{"id":"x","choices":[{"index":0,"delta":{"content":"deep"}}],"a":`
	const params = `,"kv_transfer_params":{"remote_host":"10.0.0.1"}`
	for _, event := range []string{bottomless, bottomless[:1<<20], levels(tooDeep), deeper + levels(tooDeep) + params + "}", deeper + levels(20000) + params + "}"} {
		r := newRig(t, setup{})
		r.decode[0].next(says(false, func(l leg) []string { return []string{frames(event), frames(chatEvents(l)...)} }))
		p := r.turn("c", 1, true)
		r.wantOK(p, "miss;")
		if !strings.HasPrefix(p.body, frames(strings.Replace(event, params, "", 1))) || strings.Contains(p.body, "kv_transfer_params") {
			t.Errorf("%.80s: got %.80q first, want the event without its params", event, p.body)
		}
		if len(event) <= 1<<20 && r.store.Len() != 0 {
			t.Errorf("%.80s: a ticket was kept", event)
		}
	}
}
