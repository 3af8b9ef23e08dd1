package e2e

import (
	"testing"
	"time"

	"carryover/upstream/vllmsim"
)

// The soak of doubts with tickets that are handed back whenever no turn comes, and conversations that nobody names.
func TestSoakOfDoubts_HandingBack(t *testing.T) {
	t.Parallel()
	alone, mixture := soakSize(t, doubtAlone, doubtShare), soakSize(t, doubtMixture, 1)
	seed, both := uint64(200), doubts(t, "doubts")
	for i := range both { // no hand-back is computed of other ids than were sent: see testdata/doubts.yaml
		if both[i].fault.Kind == vllmsim.FaultOtherIDs {
			both[i].fault.Route = "/v1/chat/completions"
		}
	}
	for _, mode := range []string{"now", "idle"} {
		for _, of := range []struct {
			name          string
			kinds         []doubt
			conversations int
		}{{"hand-backs", doubts(t, "hand_backs"), 2 * alone}, {"both", append(both, doubts(t, "hand_backs")...), mixture}} {
			seed++
			own := seed
			t.Run(mode+"/"+of.name, func(t *testing.T) {
				t.Parallel()
				// By turns in rotation most notes would speak of another instance.
				flags := append([]string{"--routing-prefill", "affinity"}, handBackModes()[mode]...)
				d := newDoubting(t, vllmsim.VLLM033, of.kinds, own, of.conversations, flags...)
				d.handing = true
				d.run(t, of.conversations)
				c := d.proxy.Server.Counts().HandBacks
				t.Logf("handed back: %+v; %d of %d hits by proof=engine", c, d.tally.engine, d.tally.hits)
				if c.Done == 0 || d.tally.engine == 0 && of.conversations == mixture { // of few there may be none
					t.Errorf("%d hand-backs ended well, and %d turns found what came of them: nothing was shown", c.Done, d.tally.engine)
				}
			})
		}
	}
}

// pause is for a client that lets its ticket be handed back, if others leave the program the time.
func (d *doubting) pause() {
	within(400*time.Millisecond, func() bool {
		used := d.proxy.Server.HandBackMemory()
		return used == 0
	})
}
