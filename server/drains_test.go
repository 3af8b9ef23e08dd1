package server_test

import (
	"testing"
	"time"

	"carryover/server"
	"carryover/upstream/fleet"
)

// The last decision about an instance holds on all replicas, wherever it was made, and whatever Redis forgets.
func TestDrain_TheLastDecisionHoldsOnAllReplicas(t *testing.T) {
	shared, slow := &sharedQuarantines{down: true, say: map[string]string{}}, &clock{}
	slow.ahead.Store(-int64(time.Minute))
	open := func(change func(*fleet.Config)) *rig {
		return newRig(t, setup{deps: func(d *server.Deps) { d.Shared = shared }, fleet: change})
	}
	a, b := open(nil), open(func(c *fleet.Config) { c.Now = slow.now })
	engine := func(r *rig) *fleet.Engine { return r.engine(r.decode[0]) }
	decide := func(r *rig, drain, want bool) {
		t.Helper()
		if found, got := r.server.Drain(t.Context(), engine(r).Role, engine(r).Name, drain); !found || got != want || engine(r).Health.Drains() != drain {
			t.Errorf("found %t, shared %t, drains %t; want it shared: %t", found, got, engine(r).Health.Drains(), want)
		}
	}
	round := func(r *rig, want bool) {
		t.Helper()
		if r.server.CompareQuarantines(t.Context()); engine(r).Health.Drains() != want {
			t.Errorf("drained: %t", !want)
		}
	}
	decide(a, true, false)
	round(b, false)
	shared.set(false, false)
	round(a, true)
	round(b, true)
	decide(b, false, true) // its clock is behind
	round(a, false)
	decide(b, true, true)
	for _, left := range []string{"", "9 maybe", "1 false"} { // by a failover, or by another writer
		shared.say = map[string]string{"drain decode " + engine(a).Name: left}
		round(a, false) // it does not know yet
		round(b, true)
		round(a, true)
		round(open(nil), true) // one that begins
		decide(a, false, true)
		round(b, false)
		decide(b, true, true)
	}
}
