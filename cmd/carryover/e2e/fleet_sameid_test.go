package e2e

import (
	"testing"

	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// An engine whose engine id is configured has it in its next start too: nothing but its start tells prefill, or us, that the blocks of before
// are not there. No ticket of the start of before is offered, however soon the next turn comes.
func TestFleet_ARestartUnderTheSameEngineIDIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	seenAtOnce(t, func(*rig) {})
}

// Where no connection stands, nothing ends with the process of before: only its start, read anew, tells of the next one.
func TestFleet_ARestartWhileNothingIsConnectedIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	seenAtOnce(t, func(g *rig) { g.hangUp() })
}

func seenAtOnce(t *testing.T, before func(*rig)) {
	t.Helper()
	cfg := vllmsim.DefaultConfig()
	decode := cfg
	decode.EngineID = "decode-0"
	g := startChanging(t, rigConfig{prefill: []vllmsim.Config{cfg}, decode: []vllmsim.Config{decode}})
	h := g.thread("a")
	h.turn(t, "first_turn")
	h.turn(t, hit)
	before(g)
	g.decode[0].Restart()
	if got := h.turn(t, "instance_gone"); got.Leg(upstream.RolePrefill).Err != nil {
		t.Errorf("prefill was asked for blocks of the start of before: %v", got.Leg(upstream.RolePrefill).Err)
	}
	h.turn(t, hit)
	g.nothingWrong(t, "stale_reads", "load_failures")
	g.verify(t, pins{unused: -1})
}
