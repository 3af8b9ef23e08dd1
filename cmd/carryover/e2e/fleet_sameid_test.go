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
