package vllmsim

import "testing"

// As vLLM's, a reset fails while anything is pinned.
func TestReset_FailsWhileBlocksArePinned(t *testing.T) {
	p, d := startPair(t, nil)
	next, ticket := nextTurn(t, p, d)
	if got := post(t, d, "/reset_prefix_cache", nil); got.body["success"] != false {
		t.Errorf("reset of decode: %s, want no success", got.raw)
	}
	if got := post(t, p, "/reset_prefix_cache", nil); got.body["success"] != true {
		t.Errorf("reset of prefill: %s, want success", got.raw)
	}
	prefillWith(t, p, next, ticket, "s")
	expect(t, p, counts{"CorruptReads": 0})
	if got := post(t, d, "/reset_prefix_cache", nil); got.body["success"] != true {
		t.Errorf("reset of decode when nothing is pinned: %s, want success", got.raw)
	}
}

// A ticket from before reads what nobody has computed.
func TestClearBlocks_TicketsFromBeforeReadGarbage(t *testing.T) {
	p, d := startPair(t, nil)
	next, ticket := nextTurn(t, p, d)
	d.ClearBlocks()
	expect(t, d, counts{"Pins": 0, "FreeBlocks": d.config().Blocks})
	prefillWith(t, p, next, ticket, "s")
	expect(t, p, counts{"CorruptReads": 1})
	expect(t, d, counts{"ExpiredReads": 1})
}
