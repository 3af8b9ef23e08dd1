package vllmsim

import "testing"

// As vLLM's, a reset fails while anything is pinned.
func TestReset_FailsWhileBlocksArePinned(t *testing.T) {
	p, d := startPair(t, nil)
	next, ticket := nextTurn(t, p, d)
	resets := func(i *Instance, want bool) {
		t.Helper()
		if got := post(t, i, "/reset_prefix_cache", nil); got.body["success"] != want {
			t.Errorf("reset: %s, want success %t", got.raw, want)
		}
	}
	resets(d, false)
	resets(p, true)
	prefillWith(t, p, next, ticket, "s")
	expect(t, p, counts{"CorruptReads": 0})
	resets(d, true) // nothing is pinned
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
