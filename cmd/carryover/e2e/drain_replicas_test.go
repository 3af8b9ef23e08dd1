package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"carryover/cmd/carryover/testrig"
	"carryover/convcache/redistest"
	"carryover/upstream/vllmsim"
)

// A drain is of all replicas that share Redis, outlives the one at which it began, and is taken back at any.
func TestDrain_IsOfAllReplicasAndOutlivesThem(t *testing.T) {
	t.Parallel()
	cfg := vllmsim.DefaultConfig()
	c := rigConfig{
		prefill: []vllmsim.Config{cfg}, decode: []vllmsim.Config{cfg, cfg}, env: []string{testrig.ReplicaSecret},
		flags: []string{"--redis-url", "redis://" + redistest.Start(t).Addr(), "--release", "on", "--routing-decode", "round_robin"},
	}
	a := startChanging(t, c)
	c.flags = append(c.flags, "--prefill", a.prefill[0].URL(), "--decode", a.decode[0].URL(), "--decode", a.decode[1].URL())
	drained, other := authority(a.decode[0]), authority(a.decode[1])
	c.prefill, c.decode = nil, nil
	b := startChanging(t, c)
	operates := func(g *changing, how string) {
		t.Helper()
		if answer := g.operate(t, http.MethodPost, "/admin/instances/decode/"+drained+"/"+how, nil, http.StatusOK); !answer.Get("shared").Bool() {
			t.Errorf("%s: %s", how, answer)
		}
	}
	awaits := func(g *changing, state string) {
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
		a.thread(fmt.Sprint("c", n)).on(t, whatever, other)
	}
	b = startChanging(t, c)
	operates(b, "undrain")
	awaits(a, "up")
}
