package server_test

import (
	"io"
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

func TestNesting_DeepPrefillAnswerGivesNoHandOver(t *testing.T) {
	for name, answer := range map[string]string{
		"bottomless": bottomless, "in a member": `{"id":` + bottomless, "one level too many": `{"id":"x","a":` + levels(tooDeep-1) + `}`,
	} {
		r := newRig(t, setup{})
		r.prefill[0].next(replyBody("application/json", answer))
		r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
		if l := r.decode[0].seen()[0]; strings.Contains(l.body, "kv_transfer_params") || r.store.Len() != 0 {
			t.Errorf("%s: %d conversations, decode got %s", name, r.store.Len(), l.body)
		}
	}
}

func TestNesting_DeepWholeAnswerLeavesNoTicket(t *testing.T) {
	deep := func(l leg) string { return wholeAnswer(l) + `,"usage":` + levels(tooDeep-1) + "}" }
	for name, answer := range map[string]func(leg) string{
		"bottomless":         func(leg) string { return bottomless },
		"in a member":        func(l leg) string { return wholeAnswer(l) + `,"metrics":` + bottomless },
		"one level too many": deep,
	} {
		r := newRig(t, setup{})
		r.decode[0].next(func(w http.ResponseWriter, _ *http.Request, l leg) { answerJSON(w, answer(l)) })
		r.wantError(r.turn("c", 1, false), 502, "bad_decode_answer")
		if r.store.Len() != 0 {
			t.Errorf("%s: a ticket was kept", name)
		}
	}
}

func TestNesting_DeepEventLeavesNoTicket(t *testing.T) {
	for name, event := range map[string]string{
		"longer than is read": bottomless, "as long as is read": bottomless[:1<<20], "one level too many": levels(tooDeep),
	} {
		r := newRig(t, setup{})
		unusual := frames(event)
		r.decode[0].next(func(w http.ResponseWriter, _ *http.Request, l leg) {
			sayHeaders(w)
			_, _ = io.WriteString(w, unusual)
			say(w, chatEvents(l)...)
		})
		p := r.turn("c", 1, true)
		r.wantOK(p, "miss;")
		if !strings.HasPrefix(p.body, unusual) {
			t.Errorf("%s: got %.80q first, want the event as it was", name, p.body)
		}
		if kept := r.store.Len(); len(event) <= 1<<20 && kept != 0 {
			t.Errorf("%s: a ticket was kept", name)
		}
	}
}

// An event that is too deep to be read, but names kv_transfer_params, loses them and nothing else.
func TestNesting_DeepEventLosesItsParams(t *testing.T) {
	for _, depth := range []int{tooDeep, 20000} {
		r := newRig(t, setup{})
		deep := `{"id":"x","choices":[{"index":0,"delta":{"content":"deep"}}],"a":` + levels(depth)
		r.decode[0].next(func(w http.ResponseWriter, _ *http.Request, l leg) {
			sayHeaders(w)
			_, _ = io.WriteString(w, frames(deep+`,"kv_transfer_params":{"remote_host":"10.0.0.1"}}`))
			say(w, chatEvents(l)...)
		})
		p := r.turn("c", 1, true)
		r.wantOK(p, "miss;")
		if !strings.HasPrefix(p.body, frames(deep+"}")) || strings.Contains(p.body, "kv_transfer_params") {
			t.Errorf("%d levels: got %.80q first, want the event without its params", depth, p.body)
		}
	}
}

func TestNesting_DeepErrorBodyIsNotRead(t *testing.T) {
	for name, text := range map[string]string{
		"longer than is read": bottomless, "as long as is read": bottomless[:60<<10], "one level too many": `{"error":{"message":"deep","a":` + levels(tooDeep-2) + `}}`,
	} {
		for _, fails := range []func(*rig) *engine{
			func(r *rig) *engine { return r.prefill[0] },
			func(r *rig) *engine { return r.decode[0] },
		} {
			r := newRig(t, setup{})
			fails(r).always(func(w http.ResponseWriter, _ *http.Request, _ leg) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, text)
			})
			if e := r.wantError(r.turn("c", 1, true), 400, "invalid_request"); strings.Contains(e.Message, "[") || strings.Contains(e.Message, "deep") {
				t.Errorf("%s: got message %.80q", name, e.Message)
			}
		}
	}
}

func TestNesting_DeepTokenizeAnswerIsAMiss(t *testing.T) {
	for _, answer := range []string{bottomless, `{"tokens":` + bottomless, `{"tokens":[1],"a":` + levels(tooDeep-1) + `}`} {
		r := newRig(t, setup{})
		r.prefill[0].tokenize = func(string) string { return answer }
		r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
		r.wantOK(r.turn("c", 2, true), "miss;reason=tokenize_failed")
	}
}
