package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"carryover/server"
	"carryover/server/record"
	"carryover/upstream/vllmsim"
)

// wantKnown waits until as many tokens are known to be pinned as decode pins, which must be so many answers'.
func (p *pinning) wantKnown(what string, pins int) {
	p.t.Helper()
	var s vllmsim.Stats
	known := 0
	holds := func() bool {
		s, known = p.decode.Stats(), p.server.Pins.Pinned(p.decoder())
		return s.Running == 0 && s.Pins == pins && known == s.PinnedBlocks*16
	}
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ; !holds(); <-tick.C {
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: %d tokens are known to be pinned; decode pins %d for %d answers, want %d answers", what, known, s.PinnedBlocks*16, s.Pins, pins)
		}
	}
}

// stray is a turn of no conversation.
func (p *pinning) stray(n int) {
	p.t.Helper()
	body := with(fmt.Sprintf(`"max_tokens":100,"x":%d`, n))
	body = strings.Replace(body, `"content":"q"`, fmt.Sprintf(`"content":"%d %s SAY no"`, n, strings.Repeat("The next one reads them. ", 5)), 1)
	p.wantOK(p.send(body), "miss;reason=no_conversation")
}

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
	for i := range 3 {
		p.turn(fmt.Sprint("c", i))
	}
	p.until(func() bool {
		p.server.MakeRoom(t.Context())
		return p.server.Pins.Tickets() == 0
	})
	p.wantKnown("expired tickets", 3)
	p.turn("c0")
	p.until(func() bool {
		p.server.MakeRoom(t.Context())
		return p.server.Pins.Tickets() == 0
	})
	p.wantKnown("a turn that found an expired ticket", 4)
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
	if got := p.server.Counts(); got.Piggybacked != (record.Releases{Failed: 1}) {
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
