package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/server"
	"carryover/upstream/vllmsim"
)

// Many more conversations than small KV caches can pin: tickets pin a fifth, no turn waits for blocks, and the oldest ticket goes
// first.
func TestPinned_ShareKeepsDecodingFree(t *testing.T) {
	const blocks, size, atOnce, conversations = 200, 16, 3, 40
	const share = blocks * size / 5
	for _, proof := range []string{"auto", "history"} {
		t.Run(proof, func(t *testing.T) {
			t.Parallel()
			seen := &blockUses{named: map[string]int{}}
			o := startOperated(t, rigConfig{
				prefill: alike(2, asConfigured), decode: alike(2, func(c *vllmsim.Config) { c.Blocks = blocks }),
				flags: []string{
					"--pinned-share", "0.2", "--release", "on", "--proof", proof, "--routing-prefill", "round_robin",
				},
				replace: func(deps *server.Deps) { seen.Legs, deps.Legs = deps.Legs, seen },
			}, "")
			talks := make([]*foretold, conversations)
			for i := range talks {
				talks[i] = &foretold{operated: o, id: fmt.Sprint("c", i), stream: i%2 == 0}
			}
			pinned := func(instance *vllmsim.Instance) int { return instance.Stats().PinnedBlocks * size }
			settle := func() {
				t.Helper()
				if !within(workedOff, func() bool { return pinned(o.decode[0]) <= share && pinned(o.decode[1]) <= share }) {
					t.Fatalf("decode pins %d and %d tokens, want %d at most", pinned(o.decode[0]), pinned(o.decode[1]), share)
				}
			}
			for range 2 { // turns of each
				var next sync.Mutex
				at := 0
				var workers sync.WaitGroup
				for range atOnce {
					workers.Go(func() {
						for {
							next.Lock()
							i := at
							at++
							next.Unlock()
							if i >= conversations {
								return
							}
							talks[i].say(t, longText(i))
						}
					})
				}
				workers.Wait()
				settle()
			}
			if n := o.sum(t, config.RoleDecode)["preemptions"]; n != 0 {
				t.Errorf("%d turns were preempted for want of blocks", n)
			}
			if n := o.sum(t, config.RoleDecode)["releases"]; n < conversations {
				t.Errorf("%d releases: the test shows nothing", n)
			}
			// What an operator sees is what the instances say.
			for _, instance := range o.decode {
				if !testrig.Eventually(func() bool { return o.shows(t, instance).PinnedTokens == pinned(instance) }) {
					t.Errorf("%d pinned tokens are shown, want %d", o.shows(t, instance).PinnedTokens, pinned(instance))
				}
				if pinned(instance) == 0 {
					t.Error("nothing is pinned: more is released than must be")
				}
			}
			if a, _ := talks[conversations-1].say(t, "The newest. "+longText(1)); !strings.HasPrefix(a.reuse(), "hit;") {
				t.Errorf("the newest conversation: X-KV-Reuse %q, want a hit", a.reuse())
			}
			if a, _ := talks[0].say(t, "The oldest. "+longText(2)); noHit(a.reuse()) != "miss;reason=released_over_budget" {
				t.Errorf("the oldest conversation: X-KV-Reuse %q, want that its ticket was released for room", a.reuse())
			}
			settle()
			if twice := seen.twice(); len(twice) > 0 {
				t.Errorf("blocks named by more than one leg: %v", twice)
			}
			o.verifyReads(t, 0)
		})
	}
}
