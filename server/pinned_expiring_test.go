package server_test

import (
	"testing"
	"time"

	"carryover/server"
	"carryover/server/record"
	"carryover/upstream/vllmsim"
)

// Without releases every answer pins its blocks until decode's TTL ends, whether there is a ticket for them or not.
func TestPinned_WithoutReleasesAllAnswersCount(t *testing.T) {
	p := newPinning(t, func(c *server.Config) { c.PinnedShare, c.Release, c.ReuseMinTokens = 1, false, 130 })
	for i := range 3 {
		p.stray(i)
		p.wantKnown("turns of no conversation", i+1)
	}
	p.turn("a")
	p.wantKnown("a ticket", 4)
	p.said["a"] = nil
	p.turn("a")
	p.wantKnown("a ticket that another has displaced", 5)
	p.turn("a")
	p.wantKnown("a ticket that was used", 5)
}

// A ticket that nobody used in time is none any more, and its blocks are pinned all the same.
func TestPinned_ExpiredTicketsCountUntilDecodeFreesThem(t *testing.T) {
	p := newPinning(t, func(c *server.Config) { c.PinnedShare, c.TTL = 1, 50*time.Millisecond })
	for pins, conversation := range []string{"c0", "c1", "c2", "c0"} {
		p.turn(conversation)
		p.until(func() bool {
			p.server.MakeRoom(t.Context())
			return p.server.Counts().Tickets == 0
		})
		p.wantKnown("expired tickets, and a turn that found one", pins+1)
	}
}

// What a release that failed was to free lasts.
func TestPinned_FailedReleasesCount(t *testing.T) {
	p := newPinning(t, func(c *server.Config) { c.PinnedShare, c.ReleaseBacklog = 1, 1000 })
	p.stray(0)
	p.wantKnown("an answer without a ticket", 1)
	if err := p.prefill.SetFault(vllmsim.Fault{Kind: vllmsim.FaultStatus, Count: 1}); err != nil {
		t.Fatal(err)
	}
	p.stray(1) // its first prefill leg carries the release, and fails
	p.wantKnown("a release that failed", 2)
	if got := p.server.Counts(); got.Piggybacked != (record.Ends{Failed: 1}) {
		t.Errorf("counted %+v, want one release that failed", got)
	}
}

// A turn whose prefill leg failed with its ticket has another without: the blocks of the ticket may never be read.
func TestPinned_TicketsThatWereSentInVainCount(t *testing.T) {
	p := newPinning(t, func(c *server.Config) { c.PinnedShare, c.Release = 1, false })
	p.turn("a")
	if err := p.prefill.SetFault(vllmsim.Fault{Kind: vllmsim.FaultStatus, Tickets: true, Count: 1}); err != nil {
		t.Fatal(err)
	}
	p.wantOK(p.turn("a"), "prefix;tokens=112;reason=retried_without_ticket")
	p.wantKnown("a ticket that was sent in vain", 2)
}
