package e2e

import (
	"strings"
	"testing"
	"time"

	"carryover/upstream/vllmsim"
)

// Decode keeps blocks for a minute, and the program believes in its default of eight. The first ticket that prefill refuses says so; the
// turn is computed after all.
func TestWrongTTL_TheFirstRefusedTicketIsWarnedOf(t *testing.T) {
	t.Parallel()
	cfg := vllmsim.DefaultConfig()
	short := cfg
	short.KVTTL = time.Minute
	r := startRig(t, rigConfig{prefill: []vllmsim.Config{cfg}, decode: []vllmsim.Config{short}, taught: true})
	h := r.thread("a")
	h.turn(t, "first_turn")
	h.turn(t, hit)
	r.decode[0].Advance(2 * short.KVTTL)
	h.turn(t, "retried_without_ticket")
	warned := 0
	r.turns.mu.Lock()
	for _, note := range r.turns.notes {
		if strings.Contains(note, "decoder_kv_blocks_ttl") {
			warned++
		}
	}
	r.turns.mu.Unlock()
	if warned != 1 {
		t.Errorf("%d warnings, want one that asks for the TTL", warned)
	}
	h.turn(t, hit)
	r.verify(t, pins{})
}
