package e2e

import (
	"net/http"
	"testing"

	"carryover/cmd/carryover/config"
	"carryover/upstream/vllmsim"
)

// A sender that dies while it transfers leaves chunks at the receiver which are found and whose bytes never come. What decode computes
// alone from then on must not be made of them.
func TestLMCache_SenderDiesInTransfer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode  string
		flags []string
	}{
		"async":           {mode: vllmsim.LMCacheAsync},
		"sync, by decode": {mode: vllmsim.LMCacheSync, flags: []string{"--prefill-failure", "decode_only"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startLMCache(t, lmcacheSetup{cut: true, flags: c.flags, budget: unannounced, change: func(cfg *vllmsim.Config) {
				cfg.LMCache.Mode, cfg.Timing.TransferPerBlock = c.mode, 100e6
			}})
			body := bodyOf((&dialogueOf{text: true}).next(longQuestion(1)))
			done := make(chan *answered, 1)
			go func() { done <- r.say(t, body) }()
			if !within(foundWithin, func() bool { return r.sum(t, config.RoleDecode)["chunks_held"] > 0 }) {
				t.Fatal("nothing was allocated")
			}
			r.prefill[0].Restart()
			if err := r.prefill[0].SetFault(vllmsim.Fault{Kind: vllmsim.FaultRefuse}); err != nil {
				t.Fatal(err)
			}
			r.hangUp()
			if a := <-done; a.status == http.StatusOK {
				r.compare(t, body, a)
			}
			for range 2 {
				if a := r.say(t, body); a.status == http.StatusOK {
					r.compare(t, body, a)
				}
			}
			if n := r.sum(t, "")["early_reads"]; n != 0 {
				t.Errorf("early reads: got %d, want 0", n)
			}
		})
	}
}

// What decode serves alone while the KV of another turn with the same beginning is on its way must not be made of what has not arrived.
func TestLMCache_DecodeAloneWhileOthersTransfer(t *testing.T) {
	t.Parallel()
	r := startLMCache(t, lmcacheSetup{change: func(cfg *vllmsim.Config) { cfg.Timing.TransferPerBlock = 20e6 }})
	body := bodyOf((&dialogueOf{text: true}).next(longQuestion(1)))
	done := make(chan *answered, 1)
	go func() { done <- r.say(t, body) }()
	if !within(foundWithin, func() bool { return r.sum(t, config.RoleDecode)["chunks_held"] > 0 }) {
		t.Fatal("nothing was allocated")
	}
	if a := r.say(t, bodyOf(body, members{"n": 2, "temperature": 1})); a.status != http.StatusOK { // no hand-over serves several choices
		t.Errorf("got %d: %.300s", a.status, a.raw)
	}
	r.compare(t, body, <-done)
	if n := r.sum(t, "")["early_reads"]; n != 0 {
		t.Errorf("early reads: got %d, want 0", n)
	}
}
