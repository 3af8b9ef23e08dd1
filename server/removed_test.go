package server_test

import (
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
			r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
			avoid(r.deps.Fleet, r.engine(r.decode[0]))
			r.wantOK(r.turn("c", 2, true), "hit;")
			if n := len(r.decode[1].seen()); n != 1 {
				t.Errorf("got %d legs on the other, want the second turn's", n)
			}
		})
	}
}

// What is in flight on an instance that is removed goes on to its end. One that a source loses for a moment costs no ticket.
func TestRemoved_TurnsInFlightGoOn(t *testing.T) {
	for name, row := range map[string]struct {
		decode, back bool
		next         string
	}{
		"prefill": {false, false, "hit;"}, "decode": {true, false, "miss;reason=instance_gone"}, "decode comes back": {true, true, "hit;"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{prefills: 2, decodes: 2})
			engine, gate := r.prefill[0], make(chan struct{})
			if row.decode {
				engine = r.decode[0]
			}
			engine.next(waits(gate, engine.fallback))
			answers := make(chan reply, 1) // the one answer
			go func() { answers <- r.turn("d", 1, true) }()
			engine.await(1)
			restore, draining := r.without(engine), r.deps.Fleet.Draining()
			if len(draining) != 1 || draining[0].Name != engine.name || draining[0].Live().InFlight != 1 || draining[0].Live().State != "draining" {
				t.Fatalf("%d engines drain, want %s with its turn", len(draining), engine.name)
			}
			if row.back {
				restore()
			} else if r.wantOK(r.turn("e", 1, true), "miss;reason=first_turn"); len(engine.seen()) != 1 {
				t.Error("an instance that was removed got new legs")
			}
			close(gate)
			r.wantOK(<-answers, "miss;reason=first_turn")
			r.until(func() bool { return len(r.deps.Fleet.Draining()) == 0 })
			r.wantOK(r.turn("d", 2, true), row.next)
		})
	}
}
