package server_test

import (
	"fmt"
	"testing"

	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// Ranks share an address and its start time. A quarantine of one rank does not concern the others, on any replica.
func TestQuarantine_OneRankIsSharedAlone(t *testing.T) {
	shared := &sharedQuarantines{}
	replicas := []*rig{
		newRig(t, setup{probeless: true, deps: func(d *server.Deps) { d.Shared = shared }}),
		newRig(t, setup{probeless: true, deps: func(d *server.Deps) { d.Shared = shared }}),
	}
	url := replicas[0].engine(replicas[0].prefill[0]).BaseURL
	ranks := func(r *rig) []*fleet.Engine { return r.deps.Fleet.Engines(upstream.RolePrefill) }
	for _, r := range replicas {
		instances := []upstream.Instance{*r.engine(r.decode[0]).Instance()}
		for rank := range 2 {
			instances = append(instances, upstream.Instance{
				Role: upstream.RolePrefill, Name: fmt.Sprint("p@", rank), BaseURL: url, Rank: rank, Ranked: true,
			})
		}
		r.deps.Fleet.Set(instances)
		for _, engine := range ranks(r) {
			engine.Refresh(t.Context())
		}
	}
	ranks(replicas[0])[1].Last().Quarantine()
	for i, r := range replicas {
		r.server.CompareQuarantines(t.Context())
		if zero, one := ranks(r)[0].Quarantined(), ranks(r)[1].Quarantined(); zero || !one {
			t.Errorf("replica %d: quarantined are %t and %t, want the second rank alone", i, zero, one)
		}
	}
}
