package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"carryover/cmd/carryover/testrig"
	"carryover/convcache/redistest"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// A file of instances is replaced whole, as an operator's tool does: turns go to those that it has, and a stream ends where it began.
func TestFleet_FileOfInstancesChangesUnderAStream(t *testing.T) {
	t.Parallel()
	prefill, decode := startInstances(t, 2, vllmsim.DefaultConfig()), startInstances(t, 2, vllmsim.DefaultConfig())
	file := filepath.Join(t.TempDir(), "instances.yaml")
	replace := func(prefill, decode []*vllmsim.Instance) {
		noError(t, os.WriteFile(file+".new", []byte(naming(prefill, decode, "")), 0o600))
		noError(t, os.Rename(file+".new", file))
	}
	replace(prefill[:1], decode[:1])
	g := startChanging(t, rigConfig{found: true, flags: []string{"--discovery-file", file}})
	g.prefill, g.decode = prefill, decode
	a := g.talk("a")
	a.expect(t, "first_turn", authority(decode[0]))
	end := a.begin(t, decode[0])
	replace(prefill[1:], decode[1:])
	g.await(t, decode[1])
	end(hit)
	g.awaitDrained(t)
	a.expect(t, "instance_gone", authority(decode[1]))
	a.expect(t, hit, authority(decode[1]))
	g.verify(t, pins{})
}

// An engine whose engine id is configured has it in its next start too: nothing but its start tells prefill, or us, that the blocks of before
// are not there. No ticket of the start of before is offered, however soon the next turn comes.
func TestFleet_ARestartUnderTheSameEngineIDIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	for _, connected := range []bool{true, false} { // where no connection stands, only the start, read anew, tells of the next process
		g := startChanging(t, rigConfig{prefill: []vllmsim.Config{vllmsim.DefaultConfig()}, decode: []vllmsim.Config{engineWith(`{"engine_id":"decode-0"}`)}})
		h := g.talk("a")
		h.expect(t, "first_turn")
		h.expect(t, hit)
		if !connected {
			g.hangUp()
		}
		g.decode[0].Restart()
		if got := h.expect(t, "instance_gone"); got.Leg(upstream.RolePrefill).Err != nil {
			t.Errorf("prefill was asked for blocks of the start of before: %v", got.Leg(upstream.RolePrefill).Err)
		}
		h.expect(t, hit)
		g.nothingWrong(t, "stale_reads", "load_failures")
		g.verify(t, pins{unused: -1})
	}
}

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
