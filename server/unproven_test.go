package server_test

import (
	"net/http"
	"testing"
)

// A prefill engine that does not tell the ids of its prompt leaves nothing that could be proven.
func TestUnproven_APrefillThatTellsNoIDs(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		r := newRig(t, setup{cfg: byTokens})
		r.inIDs(nil)
		r.prefill[0].always(func(w http.ResponseWriter, _ *http.Request, l leg) {
			answerJSON(w, `{"id":"cmpl-`+l.id()+`","choices":[{"index":0,"text":"w","finish_reason":"length"}],"kv_transfer_params":`+handover(l)+`}`)
		})
		for n := 1; n <= 2; n++ {
			r.wantOK(r.sendIDs("c", stream, count(100, 200)...), "miss;reason=first_turn")
			r.wantStored(n, "ineligible_unproven;why=ids")
		}
		if n := r.log.count("takes no part in the token proof", `"role":"prefill"`, `"why":"ids"`); n != 1 {
			t.Errorf("got %d lines about the engine, want one for its start", n)
		}
	})
}

// One line for each change of what the token proof can use of an incarnation, however many turns notice.
func TestUnproven_AChangeOfTheJudgmentIsOneLine(t *testing.T) {
	r := newRig(t, setup{cfg: byTokens})
	r.inIDs(nil)
	lines := func(words ...string) int { return r.log.count(append(words, "token proof", `"role":"decode"`)...) }
	for range 3 {
		r.wantOK(r.sendIDs("", true, count(100, 200)...), "miss;reason=no_conversation")
	}
	if n := lines(); n != 0 {
		t.Errorf("got %d lines from turns that take no part, want none", n)
	}
	for round := 1; round <= 2; round++ {
		r.tell(r.decode[0], metricsOf("", rigBlock))
		for range 3 {
			r.wantOK(r.sendIDs("c", true, count(100, 200)...), "miss;reason=ineligible_unproven;why=incarnation")
		}
		if n := lines(`"level":"WARN"`, `"why":"incarnation"`); n != 1 {
			t.Errorf("round %d: got %d warnings, want one: nothing else was found out in between", round, n)
		}
	}
}
