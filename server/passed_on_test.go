package server_test

import (
	"net/http"
	"testing"
	"time"

	"carryover/server"
	"carryover/server/admission"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// reviving lets the time pass after which an engine that refused a connection is tried again.
func (o *occupied) reviving(c *clock) {
	o.t.Helper()
	c.ahead.Add(int64(3 * time.Second))
	if got := o.deps.Fleet.Engine(upstream.RoleDecode, "dead-0").Live().State; got != "up" {
		o.t.Fatalf("it is %s, want up", got)
	}
}

// An engine that has refused a turn's hand-over has the turn no more: it may be back long before the turn's stream ends.
func TestDecode_OneThatRefusedHasTheTurnNoMore(t *testing.T) {
	clock := &clock{}
	o := fill(newRig(t, setup{deadDecodes: 1, cfg: roomy, fleet: func(c *fleet.Config) { c.Now = clock.now }}))
	dead, alive := o.deps.Fleet.Engine(upstream.RoleDecode, "dead-0").Live(), o.engine(o.decode[0]).Live()
	if dead.InFlight != 0 || alive.InFlight != 1 {
		t.Errorf("%d attempts on the engine that refused and %d on the other, want 0 and 1", dead.InFlight, alive.InFlight)
	}
	o.free()
}

// A hand-over that finds no room elsewhere costs the turn a fresh attempt, which may wait, and is no error.
func TestDecode_RefusedWhereTheOthersAreFull(t *testing.T) {
	clock := &clock{}
	o := fill(newRig(t, setup{deadDecodes: 1, cfg: roomy, fleet: func(c *fleet.Config) { c.Now = clock.now }}))
	o.reviving(clock)
	second := o.comes(1)
	o.free()
	o.wantOK(<-second, "miss;")
}

// breaking is a policy that panics once.
type breaking struct{ broken bool }

func (b *breaking) Pick([]upstream.Candidate, string) int {
	if !b.broken {
		b.broken = true
		panic("boom")
	}
	return 0
}

// What a turn has picked is given back if the rest of its pick panics.
func TestPanic_InAPickGivesBackWhatWasPicked(t *testing.T) {
	r := newRig(t, setup{cfg: func(c *server.Config) { c.QueueConfig = admission.QueueConfig{} }, fleet: func(c *fleet.Config) { c.Prefill, c.MaxInFlight = &breaking{}, 1 }})
	r.wantError(r.turn("c", 1, true), http.StatusInternalServerError, "internal")
	r.wantOK(r.turn("c", 1, true), "miss;")
}
