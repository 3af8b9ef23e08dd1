package pins

import (
	"testing"
	"time"

	"carryover/convcache"
)

func TestBranches_RetireInOrderAndInTime(t *testing.T) {
	b, now := &lateReleases{}, time.Now()
	for i := range 2 {
		b.add(lateRelease{id: convcache.TicketID{byte(1 - i)}, due: now.Add(time.Duration(1-i) * time.Minute)})
	}
	if got, ok := b.next(now); !ok || got.id != (convcache.TicketID{0}) {
		t.Errorf("first: got %v, %v", got.id, ok)
	}
	if got, ok := b.next(now.Add(time.Minute - time.Nanosecond)); ok {
		t.Errorf("too early: got %v", got.id)
	}
	if _, ok := b.next(now.Add(time.Minute)); !ok {
		t.Error("second: got none")
	}
	if got, ok := b.next(now.Add(time.Hour)); ok {
		t.Errorf("after the last: got %v", got.id)
	}
}

func TestBranches_OnlyThoseThatDivergeAreWatched(t *testing.T) {
	secret, err := convcache.RandomSecret()
	if err != nil {
		t.Fatal(err)
	}
	p := &Pins{Ledger: &Ledger{}, cfg: &Config{ReleaseConfig: ReleaseConfig{Release: true, BranchKeep: time.Minute}}}
	ids := func(n int, from uint32) []uint32 {
		list := make([]uint32, n)
		for i := range list {
			list[i] = from + uint32(i)
		}
		return list
	}
	chain := func(prompt []uint32) convcache.Chain {
		c, ok := secret.ChainKey().Grow(prompt, 16).Chain(len(prompt))
		if !ok {
			t.Fatal("no chain")
		}
		return c
	}
	shared := ids(32, 0)
	ticket := convcache.Ticket{Branch: convcache.Branch{Chain: chain(append(shared[:32:32], ids(32, 500)...))}}
	p.WatchBranches("m", []convcache.KeyedBranch{
		{Branch: convcache.Branch{ID: convcache.TicketID{1}, Chain: chain(append(shared[:32:32], ids(32, 900)...))}},
		{Branch: convcache.Branch{ID: convcache.TicketID{2}, Chain: chain(shared)}},
		{Branch: convcache.Branch{ID: convcache.TicketID{3}, Chain: chain(ids(64, 2000))}},
	}, &ticket)
	if len(p.late.wait) != 1 || p.late.wait[0].id != (convcache.TicketID{1}) {
		t.Errorf("watched: got %d, want the one that diverges", len(p.late.wait))
	}
}
