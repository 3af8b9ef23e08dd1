package server_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"carryover/upstream"
	"carryover/upstream/fleet"
)

// without takes an instance from the fleet, as a source does that does not find it any more, and returns what brings it back.
func (r *rig) without(gone *engine) (restore func()) {
	var all, left []upstream.Instance
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		for _, e := range r.deps.Fleet.Engines(role) {
			if all = append(all, *e.Instance()); e.Name != gone.name {
				left = append(left, *e.Instance())
			}
		}
	}
	r.deps.Fleet.Set(left)
	return func() { r.deps.Fleet.Set(all) }
}

// conversations are several that have all had their first turn.
func (r *rig) conversations() []string {
	r.t.Helper()
	ids := []string{"a", "b", "c"}
	for _, id := range ids {
		r.wantOK(r.turn(id, 1, true), "miss;reason=first_turn")
	}
	return ids
}

// A decode instance that is drained by the operator, whose circuit is open, or that is slow, still has its blocks.
func TestRemoved_NotOneThatIsOnlyAvoided(t *testing.T) {
	for name, avoid := range map[string]func(f *fleet.Fleet, e *fleet.Engine){
		"drained": func(f *fleet.Fleet, e *fleet.Engine) { f.Drain(e.Role, e.Name, true) },
		"open": func(_ *fleet.Fleet, e *fleet.Engine) {
			for range 5 {
				e.Health.Failed(&upstream.LegError{Kind: upstream.Broken})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{decodes: 2, fleet: frozen})
			ids := r.conversations()
			avoid(r.deps.Fleet, r.engine(r.decode[0]))
			for _, id := range ids {
				r.wantOK(r.turn(id, 2, true), "hit;")
			}
			r.wantTickets(3)
			if first, other := len(r.decode[0].seen()), len(r.decode[1].seen()); first != 3 || other != 3 {
				t.Errorf("got %d legs there and %d on the other, want 3 and 3", first, other)
			}
		})
	}
}

// What is in flight on an instance that is removed goes on to its end.
func TestRemoved_TurnsInFlightGoOn(t *testing.T) {
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		t.Run(role.String(), func(t *testing.T) {
			r := newRig(t, setup{prefills: 2, decodes: 2})
			r.conversations()
			engine, gate := r.decode[0], make(chan struct{})
			if role == upstream.RolePrefill {
				engine = r.prefill[0]
			}
			before := len(engine.seen())
			var sent leg
			engine.next(func(w http.ResponseWriter, q *http.Request, l leg) {
				sent = l
				if role == upstream.RoleDecode {
					say(w, chatEvents(l)[:2]...)
					waits(gate, func(w http.ResponseWriter, _ *http.Request, l leg) { say(w, chatEvents(l)[2:]...) })(w, q, l)
				} else {
					waits(gate, prefills)(w, q, l)
				}
			})
			answers := make(chan reply, 1) // the one answer
			go func() {
				answers <- r.do(context.Background(), http.MethodPost, chatPath, strings.NewReader(ask("d", true, "question 1")))
			}()
			engine.await(before + 1)
			r.without(engine)
			draining := r.deps.Fleet.Draining()
			if len(draining) != 1 || draining[0].Name != engine.name || draining[0].Live().InFlight != 1 || draining[0].Live().State != "draining" {
				t.Fatalf("%d engines drain, want %s with its turn", len(draining), engine.name)
			}
			r.wantOK(r.turn("e", 1, true), "miss;reason=first_turn")
			if n := len(engine.seen()); n != before+1 {
				t.Errorf("an instance that was removed got %d new legs", n-before-1)
			}
			close(gate)
			p := <-answers
			r.wantOK(p, "miss;reason=first_turn")
			if role == upstream.RoleDecode && p.body != chatBytes(sent) {
				t.Errorf("got %q", p.body)
			}
			r.until(func() bool { return len(r.deps.Fleet.Draining()) == 0 })
			want := "hit;"
			if role == upstream.RoleDecode {
				want = "miss;reason=instance_gone"
			}
			r.wantOK(r.turn("d", 2, true), want)
		})
	}
}

// A source that loses an instance for a moment costs the turns that it has no ticket.
func TestRemoved_ComesBackWhileATurnIsInFlight(t *testing.T) {
	r := newRig(t, setup{decodes: 2})
	gate := make(chan struct{})
	r.decode[0].next(func(w http.ResponseWriter, q *http.Request, l leg) {
		say(w, chatEvents(l)[:2]...)
		waits(gate, func(w http.ResponseWriter, _ *http.Request, l leg) { say(w, chatEvents(l)[2:]...) })(w, q, l)
	})
	answers := make(chan reply, 1) // the one answer
	go func() {
		answers <- r.do(context.Background(), http.MethodPost, chatPath, strings.NewReader(ask("a", true, "question 1")))
	}()
	r.decode[0].await(1)
	restore := r.without(r.decode[0])
	restore()
	if n := len(r.deps.Fleet.Draining()); n != 0 {
		t.Errorf("%d engines drain, want none", n)
	}
	close(gate)
	r.wantOK(<-answers, "miss;reason=first_turn")
	r.wantOK(r.turn("a", 2, true), "hit;")
	if got := fmt.Sprint(len(r.decode[0].seen()), len(r.decode[1].seen())); got != "2 0" {
		t.Errorf("got %s legs, want 2 0", got)
	}
}
