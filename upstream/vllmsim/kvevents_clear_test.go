package vllmsim

import "testing"

// As vLLM's, a reset fails while anything is pinned.
func TestReset_FailsWhileBlocksArePinned(t *testing.T) {
	p, d := startPair(t, nil)
	messages, reply := firstTurn(t, p, d)
	if got := post(t, d, "/reset_prefix_cache", nil); got.body["success"] != false {
		t.Errorf("reset of decode: %s, want no success", got.raw)
	}
	if got := post(t, p, "/reset_prefix_cache", nil); got.body["success"] != true {
		t.Errorf("reset of prefill: %s, want success", got.raw)
	}
	prefillWith(t, p, append(messages, assistant(reply.text()), user("And then?")), reply.params(), "s")
	if s := p.Stats(); s.CorruptReads != 0 {
		t.Errorf("corrupt reads %d, want none: decode was not reset", s.CorruptReads)
	}
	if got := post(t, d, "/reset_prefix_cache", nil); got.body["success"] != true {
		t.Errorf("reset of decode when nothing is pinned: %s, want success", got.raw)
	}
}

// A ticket from before reads what nobody has computed.
func TestClearBlocks_TicketsFromBeforeReadGarbage(t *testing.T) {
	p, d := startPair(t, nil)
	messages, reply := firstTurn(t, p, d)
	d.ClearBlocks()
	if s := d.Stats(); s.Pins != 0 || s.FreeBlocks != d.config().Blocks {
		t.Errorf("%d pins and %d free blocks, want none and all", s.Pins, s.FreeBlocks)
	}
	prefillWith(t, p, append(messages, assistant(reply.text()), user("And then?")), reply.params(), "s")
	if p, d := p.Stats(), d.Stats(); p.CorruptReads != 1 || d.ExpiredReads != 1 {
		t.Errorf("%d corrupt and %d expired reads, want one of each", p.CorruptReads, d.ExpiredReads)
	}
}
