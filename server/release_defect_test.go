package server

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"carryover/convcache"
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

// A defect must end neither the process nor the retiring of the branches behind it.
func TestRelease_SurvivesADefect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, work := &defectiveStore{again: make(chan convcache.TicketID)}, newBackground(slog.New(slog.DiscardHandler))
		cfg := &Config{TimeConfig: TimeConfig{StoreTimeout: time.Second}}
		r := &releaser{cfg: cfg, deps: &Deps{Fleet: fleet.New(fleet.Config{})}, background: work}
		k := &ticketMaker{cfg: cfg, deps: &Deps{Store: store}, releaser: r}
		for i := range 2 {
			k.branches.wait = append(k.branches.wait, retiring{id: convcache.TicketID{byte(i)}, due: time.Now()})
		}
		ctx, cancel := context.WithCancel(t.Context())
		work.run("release", "all", func() { work.every(ctx, workEvery, nil, "release", "all", (&turns{tickets: k, releaser: r}).workOff) })
		if id := <-store.again; id != (convcache.TicketID{1}) {
			t.Errorf("took %v after the defect, want the branch that is left", id)
		}
		cancel()
		work.wait()
	})
}
