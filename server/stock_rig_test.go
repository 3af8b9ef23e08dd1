package server_test

import (
	"testing"

	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// stock makes a rig in front of one simulated engine of each role that sends no params in streams, as vLLM 0.32 without a plug-in.
func stock(t *testing.T, cfg func(*server.Config), engines func(*vllmsim.Config), more ...func(*server.Deps)) (r *rig, sims []*vllmsim.Instance) {
	t.Helper()
	var instances []upstream.Instance
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		c := vllmsim.DefaultConfig()
		c.Version, c.Model, c.Params = vllmsim.VLLM032, "m", vllmsim.ParamsNever
		if engines != nil {
			engines(&c)
		}
		sim, err := vllmsim.Start(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if s := sim.Stats(); s.CorruptReads != 0 || s.DoubleReads != 0 || s.Poisoned != 0 {
				t.Errorf("%s: got %d corrupt and %d double reads, %d poisoned, want none", role, s.CorruptReads, s.DoubleReads, s.Poisoned)
			}
			if err := sim.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		sims = append(sims, sim)
		instances = append(instances, newInstance(t, role, role.String(), sim.URL()))
	}
	return newRig(t, setup{cfg: cfg, deps: func(d *server.Deps) {
		d.Fleet = newFleet(d.Legs.(*upstream.Client), nil, instances...)
		for _, change := range more {
			change(d)
		}
	}}), sims
}
