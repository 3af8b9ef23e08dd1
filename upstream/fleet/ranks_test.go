package fleet

import (
	"testing"

	"carryover/upstream"
)

// ranks returns two data-parallel ranks of one server.
func (r *rig) ranks() (zero, one *Engine) {
	for rank, name := range []string{"p@0", "p@1"} {
		r.instances = append(r.instances, upstream.Instance{
			Role: upstream.RolePrefill, Name: name, BaseURL: "http://p", Rank: rank, Ranked: true,
		})
	}
	r.Set(r.instances)
	return r.Engine(upstream.RolePrefill, "p@0"), r.Engine(upstream.RolePrefill, "p@1")
}

// Each rank has a prefix cache of its own.
func TestRanks_AQuarantineIsOfOneRank(t *testing.T) {
	r := newRig(t)
	zero, one := r.ranks()
	tells(zero, "1")
	tells(one, "1").Quarantine()
	if zero.Quarantined() || !one.Quarantined() {
		t.Fatal("want rank 1 quarantined alone")
	}
	all := r.instances
	r.Set(nil)
	r.Set(all)
	zero, one = r.Engine(upstream.RolePrefill, "p@0"), r.Engine(upstream.RolePrefill, "p@1")
	tells(zero, "1")
	tells(one, "1")
	if zero.Quarantined() || !one.Quarantined() {
		t.Errorf("found again: rank 0 quarantined %t, rank 1 %t, want rank 1 alone", zero.Quarantined(), one.Quarantined())
	}
}

func TestRanks_AreReadApart(t *testing.T) {
	r := newRig(t)
	sim, _ := r.simulate(upstream.RoleDecode, nil)
	instance := upstream.Instance{Role: upstream.RoleDecode, Name: "d@7", BaseURL: sim.URL(), Rank: 7, Ranked: true}
	r.Set([]upstream.Instance{instance})
	e := r.Engine(upstream.RoleDecode, "d@7")
	e.Refresh(t.Context())
	if live := e.Live(); live.KVTokens != 0 || live.Read.IsZero() {
		t.Errorf("a rank that the server does not have: %+v", live)
	}
}
