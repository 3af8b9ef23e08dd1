package e2e

import (
	"fmt"
	"testing"

	"carryover/cmd/carryover/testrig"
	"carryover/convcache/redistest"
)

// The share of decode's cache is the engine's: what one replica's tickets pin is not there for another's. Without Redis they know of each
// other by how much of the cache is in use.
func TestPinned_ReplicasKeepWithinOneShare(t *testing.T) {
	t.Parallel()
	const blocks, full = 256, 256*9/10 + 2 // usages are rounded
	for name, row := range map[string]struct {
		redis bool
		turns int // without a bound they pin more, and do not fill the cache
	}{"with Redis": {true, 40}, "without": {false, 13}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := rigConfig{
				cfg: engineWith(`{"output_token_ids":true,"blocks":256}`), env: []string{testrig.ReplicaSecret}, // of both
				flags: []string{"--release", "on", "--pinned-share", "0.5"},
			}
			if row.redis {
				c.redis, c.env = redistest.Start(t).Addr(), nil
			}
			both := []*rig{startRig(t, c)}
			decode := both[0].decode[0]
			c.sharing = both[0]
			both = append(both, startRig(t, c))
			for i, r := range both { // each can have tickets released
				(&chatting{rig: r, id: fmt.Sprint("learns ", i), asks: 10 * i}).learnt(t)
			}
			two := decode.Stats().PinnedBlocks // of the longest
			most := blocks / 2
			if !row.redis {
				most = full
			}
			settles := func() {
				t.Helper()
				if !testrig.Eventually(func() bool { return decode.Stats().PinnedBlocks <= most }) {
					t.Fatalf("decode pins %d blocks, want %d at most", decode.Stats().PinnedBlocks, most)
				}
			}
			for n := range row.turns {
				both[n%2].askAs(t, fmt.Sprint("leaves ", n), says(n))
				if pinned := decode.Stats().PinnedBlocks; row.redis && pinned > most+two {
					t.Errorf("decode pins %d blocks, want %d and an answer's at most", pinned, most)
				} else if row.redis {
					settles()
				}
				both[0].look()
				both[1].look()
			}
			settles()
			if kept := decode.Stats().PinnedBlocks; kept < blocks/4 || row.redis && kept < most-two {
				t.Errorf("decode pins %d blocks of %d: too much was given up", kept, most)
			}
			both[1].stop()
			both[0].verifyReads(t)
		})
	}
}
