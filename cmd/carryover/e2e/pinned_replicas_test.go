package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/testrig"
	"carryover/convcache/redistest"
	"carryover/upstream/vllmsim"
)

// The share of decode's cache is the engine's: what one replica's tickets pin is not there for another's. Without Redis they know of each
// other, and of other users, by how much of the cache is in use.
func TestPinned_ReplicasKeepWithinOneShare(t *testing.T) {
	t.Parallel()
	const blocks, full = 256, 256*9/10 + 2 // usages are rounded
	for name, row := range map[string]struct {
		redis           bool
		replicas, turns int // without a bound they pin more, and do not fill the cache
		texts           int // of another user's prompt
	}{
		"with Redis": {true, 2, 40, 0}, "without": {false, 2, 13, 1}, "beside another user": {false, 1, 13, 13},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := vllmsim.DefaultConfig()
			cfg.OutputTokenIDs, cfg.Blocks = true, blocks
			c := rigConfig{
				cfg: cfg, env: []string{testrig.ReplicaSecret}, // of both
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
				most = full - occupies(t, both[0], row.texts)
			}
			settles := func() {
				t.Helper()
				if !testrig.Eventually(func() bool { return decode.Stats().PinnedBlocks <= most }) {
					t.Fatalf("decode pins %d blocks, want %d at most", decode.Stats().PinnedBlocks, most)
				}
			}
			for n := range row.turns {
				both[n%row.replicas].askAs(t, fmt.Sprint("leaves ", n), says(n))
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

// occupies has another user's request run on decode until the test ends, with a prompt of so many texts, and returns how many blocks it has.
func occupies(t *testing.T, r *rig, texts int) int {
	t.Helper()
	decode, free := r.decode[0], r.decode[0].Stats().FreeBlocks
	timing := func(timing vllmsim.Timing) {
		t.Helper()
		noError(t, decode.Switch(vllmsim.Switches{Timing: &timing}))
	}
	timing(vllmsim.Timing{InterToken: time.Hour})
	ended := make(chan struct{})
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		body := encode(object{"model": "sim", "prompt": strings.Repeat(longText(99)+" ", texts), "max_tokens": 20})
		_, _ = (&rig{base: decode.URL(), client: r.client}).post(ctx, "/v1/completions", nil, body, unwatched)
	}()
	t.Cleanup(func() { leave(); <-ended })
	if !testrig.Eventually(func() bool { return decode.Stats().Running == 1 }) {
		t.Fatal("the other user's request does not run")
	}
	timing(vllmsim.Timing{})
	return free - decode.Stats().FreeBlocks
}
