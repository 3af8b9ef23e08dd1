package server_test

import (
	"strings"
	"sync"
	"testing"

	"carryover/server"
	"carryover/server/record"
	"carryover/upstream"
)

// recorded is a rig whose turns are observed.
func recorded(t *testing.T, s setup) (r *rig, all func() []record.Turn) {
	t.Helper()
	var mu sync.Mutex
	var records []record.Turn
	inner := s.deps
	s.deps = func(d *server.Deps) {
		if inner != nil {
			inner(d)
		}
		d.Observers = append(d.Observers, func(r *record.Turn) {
			mu.Lock()
			defer mu.Unlock()
			records = append(records, *r)
		})
	}
	return newRig(t, s), func() []record.Turn {
		mu.Lock()
		defer mu.Unlock()
		return records
	}
}

func TestRecord_TellsWhatATurnCameTo(t *testing.T) {
	r, all := recorded(t, setup{})
	observed := func(n int) { // a record comes after its answer, so that those of two turns in a row may change places
		t.Helper()
		r.until(func() bool { return len(all()) == n })
	}
	for i, want := range []struct{ reuse, timed, not string }{{"miss;reason=first_turn", "ttft;dur=", "answer;dur="}, {"hit;", "answer;dur=", "ttft;dur="}} {
		p := r.turn("c", i+1, i == 0) // only a stream has a first token
		r.wantOK(p, want.reuse)
		if timing := p.header.Get("Server-Timing"); !strings.Contains(timing, want.timed) || strings.Contains(timing, want.not) {
			t.Errorf("got Server-Timing %q, want %s", timing, want.timed)
		}
		observed(i + 1)
	}
	r.prefill[0].next(status(400, "too long"))
	r.wantError(r.turn("c", 3, true), 400, "invalid_request")
	observed(3)
	first, hit, refused := all()[0], all()[1], all()[2]
	if first.Reuse.Reason != record.ReasonFirstTurn || first.Reuse.Hit || first.Stored != "yes" || first.Source != "conversation_id" || first.Conversation == "" || first.Model != "m" ||
		first.TTFT <= 0 || first.Took < first.TTFT || first.Whole != 0 {
		t.Errorf("first turn: %+v", first)
	}
	if u := hit.Reuse; !u.Hit || u.Reason != "" || u.Offered != 200 || u.Proof != "tokens" || u.Cached != -1 || u.FreshAsOf.IsZero() {
		t.Errorf("hit: %+v", u)
	}
	if a := hit.Answer; a.Finish != "stop" || a.PromptTokens != 390 || a.CompletionTokens != 10 || hit.Status != 200 || hit.Code != "" || hit.Err != nil {
		t.Errorf("answer of the hit: %+v, status %d, code %q, error %v", a, hit.Status, hit.Code, hit.Err)
	}
	if len(hit.Legs) != 2 || hit.TTFT != 0 || hit.Whole <= 0 || hit.Took < hit.Whole || hit.Lookup <= 0 || hit.Lookup > hit.Whole || hit.Conversation != first.Conversation {
		t.Fatalf("hit: %+v", hit)
	}
	for i, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		if l := hit.Legs[i]; l.Role != role || l.Instance != role.String()+"-0" || l.Incarnation != rigIncarnation || l.Began.Before(hit.Began) || l.Took <= 0 || l.Err != nil {
			t.Errorf("leg of the hit: %+v", l)
		}
	}
	if l := refused.Legs; len(l) != 1 || l[0].Err == nil || refused.Status != 400 || refused.Code != "invalid_request" || refused.Err == nil || refused.Answer.PromptTokens != -1 {
		t.Errorf("refused: %+v", refused)
	}
	for n, prompt := range []string{"once upon", "once upon a time"} { // only the store shows that a text goes on
		r.sendTo(textPath, `{"model":"m","stream":true,"conversation_id":"t","prompt":"`+prompt+`"}`)
		if observed(4 + n); all()[3+n].Reuse.FollowUp() != (n == 1) {
			t.Errorf("text %d: %+v", n, all()[3+n].Reuse)
		}
	}
}
