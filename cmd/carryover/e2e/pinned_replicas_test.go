package e2e

import (
	"fmt"
	"testing"

	"carryover/cmd/carryover/testrig"
	"carryover/convcache/redistest"
)

// The share of decode's cache is the engine's: what one replica's tickets pin is not there for another's.
func TestPinned_ReplicasKeepWithinOneShare(t *testing.T) {
	t.Parallel()
	const blocks, most, turns = 256, 256 / 2, 24 // without a bound so many turns pin more
	c := rigConfig{
		cfg: engineWith(`{"output_token_ids":true,"blocks":256}`), redis: redistest.Start(t).Addr(),
		flags: []string{"--release", "on", "--pinned-share", "0.5"},
	}
	both := []*rig{startRig(t, c)}
	decode := both[0].decode[0]
	c.sharing = both[0]
	both = append(both, startRig(t, c))
	for i, r := range both { // each can have tickets released
		(&chatting{rig: r, id: fmt.Sprint("learns ", i), asks: 10 * i}).learnt(t)
	}
	two := decode.Stats().PinnedBlocks // of the longest
	for n := range turns {
		both[n%2].askAs(t, fmt.Sprint("leaves ", n), says(n))
		if pinned := decode.Stats().PinnedBlocks; pinned > most+two {
			t.Errorf("decode pins %d blocks, want %d and an answer's at most", pinned, most)
		}
		if !testrig.Eventually(func() bool { return decode.Stats().PinnedBlocks <= most }) {
			t.Fatalf("decode pins %d blocks, want %d at most", decode.Stats().PinnedBlocks, most)
		}
		both[0].look()
		both[1].look()
	}
	if kept := decode.Stats().PinnedBlocks; kept < blocks/4 || kept < most-two {
		t.Errorf("decode pins %d blocks of %d: too much was given up", kept, most)
	}
	both[1].stop()
	both[0].verifyReads(t)
}
