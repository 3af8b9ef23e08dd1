package e2e

import (
	"fmt"
	"testing"

	"carryover/cmd/carryover/testrig"
	"carryover/convcache/redistest"
)

// A drain is of all replicas that share Redis, outlives the one at which it began, and is taken back at any.
func TestDrain_IsOfAllReplicasAndOutlivesThem(t *testing.T) {
	t.Parallel()
	c := rigConfig{
		decodes: 2, redis: redistest.Start(t).Addr(), flags: []string{"--release", "on", "--routing-decode", "round_robin"},
	}
	a := startChanging(t, c)
	drained, other := authority(a.decode[0]), authority(a.decode[1])
	c.sharing = a
	b := startChanging(t, c)
	operates := func(g *rig, how string) {
		t.Helper()
		if answer := g.drain(t, drained, how); !answer.Get("shared").Bool() {
			t.Errorf("%s: %s", how, answer)
		}
	}
	awaits := func(g *rig, state string) {
		t.Helper()
		if !testrig.Eventually(func() bool { return g.state(t, drained) == state }) {
			t.Fatalf("the instance is %q, want %q", g.state(t, drained), state)
		}
	}
	operates(a, "drain")
	awaits(b, "draining")
	a.stop()
	b.stop()
	a = startChanging(t, c)
	for n := range 3 { // from its first turn on
		a.talk(fmt.Sprint("c", n)).expect(t, whatever, other)
	}
	b = startChanging(t, c)
	operates(b, "undrain")
	awaits(a, "up")
}
