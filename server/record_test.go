package server_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

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
	r.wantOK(r.turn("c", 1, false), "miss;reason=first_turn")
	observed(1)
	r.wantOK(r.turn("c", 2, false), "hit;")
	observed(2)
	r.prefill[0].next(status(400, "too long"))
	r.wantError(r.turn("c", 3, true), 400, "invalid_request")
	observed(3)
	first, hit, refused := all()[0], all()[1], all()[2]
	if first.Reuse.Reason != record.ReasonFirstTurn || first.Reuse.Hit || first.Stored != "yes" || first.Source != "conversation_id" || first.Conversation == "" || first.Model != "m" {
		t.Errorf("first turn: %+v", first)
	}
	if u := hit.Reuse; !u.Hit || u.Reason != "" || u.Offered != 200 || u.Proof != "tokens" || u.Cached != -1 || u.FreshAsOf.IsZero() {
		t.Errorf("hit: %+v", u)
	}
	if a := hit.Answer; a.Finish != "stop" || a.PromptTokens != 390 || a.CompletionTokens != 10 || hit.End.Status != 200 || hit.End.Code != "" || hit.End.Err != nil {
		t.Errorf("answer of the hit: %+v, status %d, code %q, error %v", a, hit.End.Status, hit.End.Code, hit.End.Err)
	}
	if len(hit.Legs) != 2 || hit.TTFT != 0 || hit.Whole <= 0 || hit.Took < hit.Whole || hit.Lookup <= 0 || hit.Lookup > hit.Whole || hit.Conversation != first.Conversation {
		t.Fatalf("hit: %+v", hit)
	}
	for i, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		if l := hit.Legs[i]; l.Role != role || l.Instance != role.String()+"-0" || l.Incarnation != rigIncarnation || l.Began.Before(hit.Began) || l.Took <= 0 || l.Err != nil {
			t.Errorf("leg of the hit: %+v", l)
		}
	}
	if l := refused.Legs; len(l) != 1 || l[0].Err == nil || refused.End.Status != 400 || refused.End.Code != "invalid_request" || refused.End.Err == nil || refused.Answer.PromptTokens != -1 {
		t.Errorf("refused: %+v", refused)
	}
}

// A prefill leg that runs beside decode's is as long as it was, and not as the stream.
func TestRecord_OfLegsThatRunTogether(t *testing.T) {
	t.Parallel() // for a second
	r, all := recorded(t, setup{deps: func(d *server.Deps) { d.Connector = together{} }})
	r.prefill[0].tokenize = func(string) string { return `{"count":3,"tokens":[7,8,9]}` }
	const stream = time.Second // far longer than prefill takes on a busy machine
	r.decode[0].always(func(w http.ResponseWriter, q *http.Request, l leg) {
		say(w, textEvents(l)[:1]...)
		select {
		case <-time.After(stream):
		case <-q.Context().Done():
		}
		say(w, textEvents(l)[1:]...)
	})
	r.wantOK(r.sendTo(textPath, asking(true)), "miss;reason=ineligible_connector")
	r.until(func() bool { return len(all()) == 1 })
	rec := all()[0]
	if took := rec.PrefillTook(); took <= 0 || took >= stream || rec.Took < stream || rec.Leg(upstream.RolePrefill).Err != nil {
		t.Errorf("prefill took %v of %v: %+v", took, rec.Took, rec.Legs)
	}
}

// An attempt that was tried again without its ticket has saved nothing, whatever prefill had read for it.
func TestRecord_ARetryWithoutTheTicketHasSavedNothing(t *testing.T) {
	r, all := recorded(t, setup{})
	r.wantOK(r.turn("c", 1, true), "miss;")
	r.wantOK(r.turn("c", 2, true), "hit;")
	r.decode[0].next(status(503, "later"))
	r.wantOK(r.turn("c", 3, true), "miss;reason=retried_without_ticket")
	r.until(func() bool { return len(all()) == 3 })
	if hit, retried := all()[1], all()[2]; hit.Reuse.Saved <= 0 || retried.Reuse.Saved != 0 {
		t.Errorf("saved %v by the hit and %v by the miss, want something and nothing", hit.Reuse.Saved, retried.Reuse.Saved)
	}
}
