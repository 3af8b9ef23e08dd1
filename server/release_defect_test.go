package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"carryover/convcache"
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
		s := startServer(t)
		store := &defectiveStore{again: make(chan convcache.TicketID)}
		s.deps.Store, s.cfg.StoreTimeout = store, time.Second
		for i := range 2 {
			s.branches.wait = append(s.branches.wait, retiring{id: convcache.TicketID{byte(i)}, due: time.Now()})
		}
		ctx, cancel := context.WithCancel(t.Context())
		s.detached.Go(func() { s.workOff(ctx) })
		if id := <-store.again; id != (convcache.TicketID{1}) {
			t.Errorf("took %v after the defect, want the branch that is left", id)
		}
		cancel()
		s.detached.Wait()
	})
}
