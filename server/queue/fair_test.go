package queue_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"carryover/server/queue"
)

// With as many places, the tenant that has waited for longest is next; within a tenant, its turns keep their order.
func TestFair_TiesGoByTime(t *testing.T) {
	inHall(t, 1, roomy(), func(h *hall) {
		h.comes("x")
		for _, tenant := range []string{"a", "a", "b", "c", "b", "a"} {
			h.comes(tenant)
		}
		holder := "x"
		for range 6 {
			h.goes(holder)
			holder = h.served[len(h.served)-1]
		}
		// a holds its place until it is freed, so that its next turn is compared when it holds none.
		if want := []string{"x", "a", "a", "b", "c", "b", "a"}; !slices.Equal(h.served, want) {
			t.Errorf("got %v, want %v", h.served, want)
		}
	})
}

// Three tenants keep their lines full; each gets a third of the places whatever its number of turns.
func TestFair_SharesAreEqual(t *testing.T) {
	const slots, rounds = 6, 300
	inHall(t, slots, queue.Config{MaxWaiting: 10_000, Timeout: roomy().Timeout}, func(h *hall) {
		for i, turns := range []int{rounds * 2, rounds + 20, rounds} {
			for range turns {
				h.comes(fmt.Sprint("tenant ", i))
			}
		}
		// Of those that were served first, which all were of one tenant, one after another ends, then of the next ones.
		for i := range rounds {
			h.goes(h.served[i])
		}
		count := map[string]int{}
		for _, tenant := range h.served[rounds:] { // the tenants that hold places now
			count[tenant]++
		}
		for tenant, n := range count {
			if n != slots/3 {
				t.Errorf("%s holds %d of %d places", tenant, n, slots)
			}
		}
	})
}

// Newcomers do not overtake turns that wait for the same class, and do not wait for those of another.
func TestFair_NewcomersStandInLine(t *testing.T) {
	inHall(t, 0, roomy(), func(h *hall) {
		a := h.comes("a")
		h.slots.free.Add(1) // Freed is on its way
		b := h.comes("b")
		h.wantWaiting(2)
		if _, err := h.q.Wait(h.t.Context(), queue.Claim{Tenant: "b", Class: "another"}, 0, newSlots(1).take); err != nil {
			t.Errorf("got %v, want a place of another class", err)
		}
		h.q.Freed()
		synctest.Wait()
		h.want(a, nil)
		h.goes("a")
		h.want(b, nil)
	})
}

// A class without room keeps no other from its places, and costs each round one try.
func TestFair_ClassWithoutAFreeSlotIsTriedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue.New(roomy())
		tries := 0
		for range 50 {
			go func() {
				_, _ = q.Wait(t.Context(), queue.Claim{Tenant: "a", Class: "busy"}, 0, func() bool { tries++; return false })
			}()
			synctest.Wait()
		}
		served := make(chan error, 1)
		free := newSlots(0)
		go func() {
			_, err := q.Wait(t.Context(), queue.Claim{Tenant: "a", Class: "other"}, 0, free.take)
			served <- err
		}()
		synctest.Wait()
		tries = 0
		free.free.Add(1)
		q.Freed()
		synctest.Wait()
		if err := <-served; err != nil || tries != 1 {
			t.Errorf("got %v, and %d tries of the class without room; want a place and 1", err, tries)
		}
		q.Close()
		synctest.Wait()
	})
}
