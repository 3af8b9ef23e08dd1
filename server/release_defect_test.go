package server

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"carryover/convcache"
	"carryover/server/background"
	"carryover/server/pins"
	"carryover/upstream/connector/nixl"
	"carryover/upstream/fleet"
)

// defectiveStore panics at the first take and tells of the second.
type defectiveStore struct {
	Store
	takes int
	again chan convcache.TicketID
}

func (s *defectiveStore) Take(_ context.Context, _ convcache.Key, id convcache.TicketID) (convcache.Ticket, convcache.Outcome) {
	if s.takes++; s.takes == 1 {
		panic("defect")
	}
	s.again <- id
	return convcache.Ticket{}, convcache.Consumed
}

// diverging returns chains of which none continues another.
func diverging(t *testing.T, n int) (all []convcache.Chain) {
	t.Helper()
	secret, err := convcache.RandomSecret()
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		ids := make([]uint32, 32)
		ids[16] = uint32(i)
		chain, ok := secret.ChainKey().IDs(ids).Grow(16).Chain(len(ids))
		if !ok {
			t.Fatal("no chain")
		}
		all = append(all, chain)
	}
	return all
}

// A defect must end neither the process nor the retiring of the branches behind it.
func TestRelease_SurvivesADefect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, work := &defectiveStore{again: make(chan convcache.TicketID)}, background.New(slog.New(slog.DiscardHandler))
		p := pins.New(pins.Config{ReleaseConfig: pins.ReleaseConfig{Release: true}, StoreTimeout: time.Second}, pins.Deps{
			Fleet: fleet.New(fleet.Config{}), Store: store, Connector: nixl.Connector{}, Background: work.Run,
		})
		chains := diverging(t, 3)
		p.WatchBranches("m", []convcache.KeyedBranch{{Branch: convcache.Branch{Chain: chains[0]}}, {Branch: convcache.Branch{ID: convcache.TicketID{1}, Chain: chains[1]}}}, &convcache.Ticket{Branch: convcache.Branch{Chain: chains[2]}})
		p.Begin(func(task string, every time.Duration, early <-chan struct{}, round func(context.Context)) {
			if task == "release" {
				work.Repeat(task, every, early, round)
			}
		})
		if id := <-store.again; id != (convcache.TicketID{1}) {
			t.Errorf("took %v after the defect, want the branch that is left", id)
		}
		work.Abandon()
		work.Wait()
	})
}
