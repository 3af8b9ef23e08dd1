package e2e

import (
	"testing"
	"time"

	"carryover/cmd/carryover/config"
	"carryover/upstream/vllmsim"
)

// handBackDoubts are what befalls hand-backs alone. Those of other ids are missing: between prefill's filing what it has computed and
// its saying so a next turn finds it that names no conversation, and does not wait for the leg. TestHandBack_FaultsOfTheLeg has them, one
// after the other.
func handBackDoubts() []doubt {
	prefill := func(name string, fault vllmsim.Fault) doubt {
		fault.HandBacks = true
		return doubt{name: name, role: config.RolePrefill, fault: fault}
	}
	quarantining := func(name, kind string) doubt {
		d := prefill(name, vllmsim.Fault{Kind: kind, Probability: 0.5})
		d.restarts, d.seen, d.ends = atTheEnd, true, []string{endsBroken, failed}
		return d
	}
	return []doubt{
		prefill("hand-backs fail", vllmsim.Fault{Kind: vllmsim.FaultStatus, Probability: 0.5}),
		prefill("hand-backs are cut", vllmsim.Fault{Kind: vllmsim.FaultReset, Probability: 0.5}),
		prefill("hand-backs die", vllmsim.Fault{Kind: vllmsim.FaultDieMidEvent, Probability: 0.5}),
		prefill("hand-backs end with an error", vllmsim.Fault{Kind: vllmsim.FaultErrorEvent, Probability: 0.5}),
		prefill("hand-backs take long", vllmsim.Fault{Kind: vllmsim.FaultSlow, Factor: 20}),
		quarantining("hand-backs without a receipt", vllmsim.FaultNoIDEcho),
	}
}

// sparing are doubts in which no hand-back is computed of other ids than were sent: see handBackDoubts.
func sparing(kinds []doubt) []doubt {
	for i := range kinds {
		if kinds[i].fault.Kind == vllmsim.FaultOtherIDs {
			kinds[i].fault.Route = "/v1/chat/completions"
		}
	}
	return kinds
}

// The soak of doubts with tickets that are handed back whenever no turn comes, and conversations that nobody names.
func TestSoakOfDoubts_HandingBack(t *testing.T) {
	t.Parallel()
	alone, mixture := soakSize(t, doubtAlone, doubtShare), soakSize(t, doubtMixture, 1)
	seed := uint64(200)
	for _, mode := range []string{"now", "idle"} {
		for _, of := range []struct {
			name          string
			kinds         []doubt
			conversations int
		}{{"hand-backs", handBackDoubts(), 2 * alone}, {"both", append(sparing(doubts()), handBackDoubts()...), mixture}} {
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
				t.Logf("handed back: %+v; %d of %d hits by proof=engine", c, d.engine, d.hits)
				if c.Done == 0 || d.engine == 0 && of.conversations == mixture { // of few there may be none
					t.Errorf("%d hand-backs ended well, and %d turns found what came of them: nothing was shown", c.Done, d.engine)
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
