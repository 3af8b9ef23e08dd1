package e2e

import (
	"fmt"
	"testing"
	"time"

	"carryover/upstream/vllmsim"
)

// Prefill computes a prompt, begins to send its KV, and its answer is lost. LMCache finds KV by the ids of the prompt from before its bytes
// have come, so that the further attempt, and decode alone, must not find what the first has sent.
func TestLMCache_PrefillSendsAndItsAnswerIsLost(t *testing.T) {
	t.Parallel()
	const slow, slower = 5 * time.Millisecond, 100 * time.Millisecond // within the hand-over budget, and not within one that is unannounced
	failed := fallen{way: atDecode + "prefill_failed;"}
	late, over := failed, fallen{way: overPrefill}
	for name, c := range map[string]struct {
		fault              string
		senders, receivers int
		perBlock           time.Duration
		flags              []string
		want               fallen
	}{
		"500, decode alone":                    {fault: vllmsim.FaultLostStatus, perBlock: slow, want: failed},
		"500, decode alone, never there":       {fault: vllmsim.FaultLostStatus, perBlock: slower, want: failed},
		"500, another receiver alone":          {fault: vllmsim.FaultLostStatus, receivers: 2, perBlock: slower, want: failed},
		"500, another sender":                  {fault: vllmsim.FaultLostStatus, senders: 2, perBlock: slow, want: over},
		"broken, the same sender":              {fault: vllmsim.FaultLostAnswer, perBlock: slow, want: over},
		"broken, decode alone by policy":       {fault: vllmsim.FaultLostAnswer, perBlock: slow, want: failed, flags: []string{"--prefill-failure", "decode_only"}},
		"broken, another receiver by policy":   {fault: vllmsim.FaultLostAnswer, receivers: 2, perBlock: slower, want: failed, flags: []string{"--prefill-failure", "decode_only"}},
		"broken, error by policy":              {fault: vllmsim.FaultLostAnswer, perBlock: slower, want: fallen{status: 502, code: "prefill_failed"}, flags: []string{"--prefill-failure", "error"}},
		"broken, another sender and receiver":  {fault: vllmsim.FaultLostAnswer, senders: 2, receivers: 2, perBlock: slow, want: over},
		"broken, the same sender, never there": {fault: vllmsim.FaultLostAnswer, perBlock: slower, want: late},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stream %t", name, stream), func(t *testing.T) {
				t.Parallel()
				var budget time.Duration
				if c.perBlock == slower {
					budget = unannounced
				}
				r := startLMCache(t, lmcacheSetup{
					cut: true, senders: c.senders, receivers: c.receivers, budget: budget, flags: append([]string{"--routing-prefill", "round_robin"}, c.flags...),
					change: func(cfg *vllmsim.Config) { cfg.Timing.TransferPerBlock = c.perBlock },
				})
				if err := r.prefill[0].SetFault(vllmsim.Fault{Kind: c.fault, Count: 1}); err != nil {
					t.Fatal(err)
				}
				for n := range len(r.prefill) { // one of them meets the fault
					d := &dialogueOf{}
					r.expect(t, c.want, bodyOf(d.next(longQuestion(n)), members{"stream": stream}))
				}
				r.verifyUnleft(t)
			})
		}
	}
}
