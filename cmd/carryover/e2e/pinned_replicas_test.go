package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/testrig"
	"carryover/convcache/redistest"
	"carryover/upstream/vllmsim"
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

// Without Redis replicas know of each other, and of other users, by how much of the cache is in use. Usages are rounded.
func TestPinned_LeaveRoomForOthersWithoutRedis(t *testing.T) {
	const blocks, full = 256, 256*9/10 + 2
	for name, row := range map[string]struct{ replicas, turns, texts int }{"without": {2, 13, 1}, "beside another user": {1, 13, 13}} {
		t.Run(name, func(t *testing.T) {
			c := rigConfig{cfg: engineWith(`{"output_token_ids":true,"blocks":256}`), flags: []string{"--release", "on", "--pinned-share", "0.5"}, env: []string{testrig.ReplicaSecret}}
			both := []*rig{startRig(t, c)}
			decode := both[0].decode[0]
			c.sharing = both[0]
			both = append(both, startRig(t, c))
			for i, r := range both {
				(&chatting{rig: r, id: fmt.Sprint("learns ", i), asks: 10 * i}).learnt(t)
			}
			free := decode.Stats().FreeBlocks
			noError(t, decode.Switch(vllmsim.Switches{Timing: &vllmsim.Timing{InterToken: time.Hour}}))
			ended := make(chan struct{})
			ctx, leave := context.WithCancel(t.Context())
			go func() {
				defer close(ended)
				req, _ := http.NewRequestWithContext(ctx, "POST", decode.URL()+"/v1/completions", strings.NewReader(fmt.Sprintf(`{"model":"sim","prompt":%q,"max_tokens":20}`, strings.Repeat(longText(99)+" ", row.texts))))
				req.Header.Set("Content-Type", "application/json")
				if resp, err := http.DefaultClient.Do(req); err == nil {
					resp.Body.Close()
				}
			}()
			defer func() { leave(); <-ended }()
			if !testrig.Eventually(func() bool { return decode.Stats().Running == 1 }) {
				t.Fatal("the other user's request does not run")
			}
			noError(t, decode.Switch(vllmsim.Switches{Timing: &vllmsim.Timing{}}))
			most := full - (free - decode.Stats().FreeBlocks)
			for n := range row.turns {
				both[n%row.replicas].askAs(t, fmt.Sprint("leaves ", n), says(n))
				both[0].look()
				both[1].look()
			}
			if !testrig.Eventually(func() bool { return decode.Stats().PinnedBlocks <= most }) {
				t.Fatalf("decode pins %d blocks, want %d at most", decode.Stats().PinnedBlocks, most)
			}
			if kept := decode.Stats().PinnedBlocks; kept < blocks/4 {
				t.Errorf("decode pins %d blocks of %d: too much was given up", kept, most)
			}
		})
	}
}
