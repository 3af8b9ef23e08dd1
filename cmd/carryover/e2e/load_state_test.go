package e2e

import (
	"fmt"
	"math"
	"testing"
	"time"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/upstream/vllmsim"
)

// What an operator sees of instances under load is what the instances say.
func TestLiveState_IsThatOfTheInstances(t *testing.T) {
	t.Parallel()
	const perToken = 4000 // µs: of 400, a busy machine itself added four times as much
	o := startOperated(t, rigConfig{
		prefill: alike(1, func(c *vllmsim.Config) { c.Timing.PrefillPerToken = perToken * time.Microsecond }),
		decode:  alike(2, func(c *vllmsim.Config) { c.MaxNumSeqs, c.Blocks, c.Timing.InterToken = 2, 400, time.Hour }),
	}, "")
	running, waiting := o.crowd(t, "", 4), &held{} // two streams on each decode instance
	for range 2 {
		o.open(t, waiting, "")
	}
	if !testrig.Eventually(func() bool { return o.sum(t, config.RoleDecode)["waiting"] == 2 }) {
		t.Fatalf("decode: %v, want two turns that wait", o.sum(t, config.RoleDecode))
	}
	// One turn waits on each instance: the least loaded one is picked.
	compare := func(load int) {
		t.Helper()
		o.look()
		for _, instance := range o.decode {
			s := instance.Stats()
			got := o.shows(t, instance)
			if got.Running != s.Running-s.Waiting-s.Loading || got.Waiting != s.Waiting+s.Loading || got.InFlight != load || got.Running+got.Waiting != load {
				t.Errorf("%d running, %d waiting, %d in flight are shown, want %d in all of %+v", got.Running, got.Waiting, got.InFlight, load, s)
			}
			used := float64(400-s.FreeBlocks) / 400
			if math.Abs(got.KVUsage-used) > 1e-9 || got.KVTokens != 400*16 || (used > 0) != (load > 0) {
				t.Errorf("usage %g of %d tokens is shown, want %g of %d", got.KVUsage, got.KVTokens, used, 400*16)
			}
		}
	}
	compare(3)
	waiting.leave()
	running.leave()
	if !testrig.Eventually(func() bool {
		return o.sum(t, config.RoleDecode)["running"] == 0 && o.shows(t, o.decode[0]).InFlight+o.shows(t, o.decode[1]).InFlight == 0
	}) {
		t.Fatal("decode runs what its clients have left")
	}
	compare(0)
	for i := range 12 {
		turn := brief()
		turn["messages"] = []any{question(fmt.Sprint(i, " ", longText(i), " SAY yes"))}
		o.send(t, "", turn)
	}
	if got := o.shows(t, o.prefill[0]).TokenMicros; got < 0.9*perToken || got > 4*perToken {
		t.Errorf("%g µs for a token of a prompt are shown, want about %d", got, perToken)
	}
	o.verify(t, pins{unused: 12})
}
