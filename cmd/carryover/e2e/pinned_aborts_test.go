package e2e

import (
	"context"
	"testing"
	"time"

	"carryover/cmd/carryover/testrig"
	"carryover/upstream/vllmsim"
)

// pinnedTokens are what the program says that is pinned, and what decode engines pin.
func (r *rig) pinnedTokens(t *testing.T, blockSize int) (told, held int) {
	t.Helper()
	return int(scrape(t, r.metrics()).sum("carryover_pinned_tokens")), r.atDecode("pinned_blocks") * blockSize
}

// Clients leave while prefill has a ticket, or one that is to be released. The engine frees decode's blocks, or does not, and does not
// say so: the program has them released where that is open, and its figure ends up at what decode pins.
func TestPinned_AfterClientsLeaveIsWhatEnginesHold(t *testing.T) {
	t.Parallel()
	slow := func(c *vllmsim.Config) { c.Timing.PrefillPerToken = 100 * time.Microsecond }
	for name, tc := range map[string]struct {
		engines func(*vllmsim.Config)
		fault   vllmsim.Fault // of prefill's leg
		stays   bool          // the client does
		rides   bool          // the leg carries a release, not a ticket
	}{
		"client leaves before prefill has begun":                  {fault: vllmsim.Fault{Kind: vllmsim.FaultSlowHeaders, Delay: time.Hour}},
		"client leaves while prefill works":                       {fault: vllmsim.Fault{Kind: vllmsim.FaultSlow, Factor: 1000}, engines: slow},
		"prefill's answer is lost":                                {fault: vllmsim.Fault{Kind: vllmsim.FaultLostAnswer}, stays: true},
		"prefill answers 500":                                     {fault: vllmsim.Fault{Kind: vllmsim.FaultLostStatus}, stays: true},
		"client leaves with a release before prefill has it":      {fault: vllmsim.Fault{Kind: vllmsim.FaultSlowHeaders, Delay: time.Hour}, rides: true},
		"client leaves with a release while prefill works":        {fault: vllmsim.Fault{Kind: vllmsim.FaultSlow, Factor: 1000}, rides: true, engines: slow},
		"prefill's answer to a leg with a release is lost":        {fault: vllmsim.Fault{Kind: vllmsim.FaultLostAnswer}, rides: true, stays: true},
		"prefill answers 500 to a leg with a release that it had": {fault: vllmsim.Fault{Kind: vllmsim.FaultLostStatus}, rides: true, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := vllmsim.DefaultConfig()
			if tc.engines == nil {
				tc.engines = asConfigured
			}
			r, _ := startReleasing(t, 1, 1, tc.engines, "--hand-back", "off")
			c := r.talk("left")
			c.learnt(t)
			if tc.rides {
				noError(t, r.oneShot(t.Context(), 1))
			}
			tc.fault.Count = 1
			r.setFault(t, r.prefill[0], tc.fault)
			seen, before := r.prefill[0].Stats(), len(legs(r.prefill[0]))
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			body := object{"model": "sim", "messages": append(c.h.messages, says(9)), "max_tokens": 400}
			if !tc.rides {
				body["conversation_id"] = c.id
			}
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				_, _ = r.post(ctx, "/v1/chat/completions", nil, encode(body), unwatched) // its client has left
			}()
			if !testrig.Eventually(func() bool { return len(legs(r.prefill[0])) > before }) {
				t.Fatal("prefill has got no leg")
			}
			if tc.fault.Kind == vllmsim.FaultSlow && !testrig.Eventually(func() bool { return r.prefill[0].Stats().Requests > seen.Requests }) {
				t.Fatal("prefill works at nothing")
			}
			if !tc.stays {
				leave()
			}
			<-gone
			tickets := 0
			if tc.rides || tc.stays {
				tickets = 1 // of the conversation
			}
			told, held := 0, 0
			settled := testrig.Eventually(func() bool {
				told, held = r.pinnedTokens(t, cfg.BlockSize)
				return told == held && r.atDecode("pins") == tickets && r.sum("")["running"] == 0
			})
			if !settled {
				t.Errorf("%d tokens are said to be pinned, decode pins %d of %d answers; want the same, of %d", told, held, r.atDecode("pins"), tickets)
			}
			r.stop()
			r.nothingWrong(t)
		})
	}
}
