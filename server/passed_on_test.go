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

// An engine that has refused a turn's hand-over has the turn no more: it may be back long before the turn's stream ends. A hand-over that finds no room
// elsewhere costs the turn a fresh attempt, which may wait, and is no error.
func TestDecode_OneThatRefusedHasTheTurnNoMore(t *testing.T) {
	clock := &clock{}
	o := fill(newRig(t, setup{deadDecodes: 1, cfg: roomy, fleet: func(c *fleet.Config) { c.Now = clock.now }}))
	dead := o.deps.Fleet.Engine(upstream.RoleDecode, "dead-0")
	if refused, alive := dead.Live().InFlight, o.engine(o.decode[0]).Live().InFlight; refused != 0 || alive != 1 {
		t.Errorf("%d attempts on the engine that refused and %d on the other, want 0 and 1", refused, alive)
	}
	clock.ahead.Add(int64(3 * time.Second)) // when it is tried again
	if got := dead.Live().State; got != "up" {
		t.Fatalf("it is %s, want up", got)
	}
	second := o.waits(1)
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
