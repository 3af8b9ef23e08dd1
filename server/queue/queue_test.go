package queue_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"carryover/server/queue"
)

func TestWait_TurnIsServedWhenASlotIsFreed(t *testing.T) {
	inHall(t, 1, roomy(), func(h *hall) {
		h.want(h.comes("a"), nil)
		b := h.comes("a")
		h.wantWaiting(1)
		<-time.After(3 * time.Second) // of the bubble's clock
		h.goes("a")
		if g := <-b; g.err != nil || g.took != 3*time.Second {
			t.Errorf("got %+v, want a place after 3s", g)
		}
		if d := h.q.Delay(); d != 3*time.Second/8 {
			t.Errorf("got a delay of %s, want an eighth of 3s", d)
		}
		h.goes("a")
		h.wantNothing()
	})
}

func TestWait_SeveralSlotsFreedAtOnceServeSeveralTurns(t *testing.T) {
	inHall(t, 0, roomy(), func(h *hall) {
		var all []<-chan got
		for range 5 {
			all = append(all, h.comes("a"))
		}
		h.frees(3)
		for _, ended := range all[:3] {
			h.want(ended, nil)
		}
		h.wantWaiting(2)
		h.frees(2)
		h.wantWaiting(0)
	})
}

func TestWait_EndsWithItsTime(t *testing.T) {
	inHall(t, 0, queue.Config{MaxWaiting: 10, Timeout: 10 * time.Second}, func(h *hall) {
		began := time.Now()
		if _, err := h.q.Wait(h.t.Context(), claim("a"), 4*time.Second, h.slots.take); !errors.Is(err, queue.ErrTimeout) || time.Since(began) != 6*time.Second {
			t.Errorf("got %v after %s, want ErrTimeout after 6s: it had waited for 4", err, time.Since(began))
		}
		if took, err := h.q.Wait(h.t.Context(), claim("a"), 10*time.Second, h.slots.take); !errors.Is(err, queue.ErrTimeout) || took != 0 {
			t.Errorf("got %v after %s, want ErrTimeout at once", err, took)
		}
		h.slots.free.Add(1)
		if _, err := h.q.Wait(h.t.Context(), claim("a"), 10*time.Second, h.slots.take); err != nil {
			t.Errorf("got %v, want the place that is free", err)
		}
		h.goes("a")
		h.wantNothing()
	})
}

func TestWait_ClientThatLeavesGoesAtOnce(t *testing.T) {
	inHall(t, 0, roomy(), func(h *hall) {
		gone := errors.New("gone")
		ctx, leave := context.WithCancelCause(h.t.Context())
		a, b := h.comesIn(ctx, "a"), h.comes("b")
		leave(gone)
		synctest.Wait()
		h.want(a, gone)
		h.wantWaiting(1)
		h.frees(1)
		h.want(b, nil)
		h.goes("b")
		h.wantNothing()
	})
}

// The turn that was told of a place leaves before it has tried.
func TestWait_TurnThatLeavesInsteadOfTryingHandsOn(t *testing.T) {
	for range 100 { // a select with two ways takes one at random
		inHall(t, 0, roomy(), func(h *hall) {
			ctx, leave := context.WithCancel(h.t.Context())
			a, b := h.comesIn(ctx, "a"), h.comes("b")
			leave()
			h.slots.free.Add(1)
			h.q.Freed() // while a is in the line still
			synctest.Wait()
			h.want(a, context.Canceled)
			h.want(b, nil)
		})
	}
}

func TestWait_TryThatPanicsHoldsNothing(t *testing.T) {
	inHall(t, 0, roomy(), func(h *hall) {
		panics := func() bool { panic("defect") }
		for range 2 { // at once, and of a turn that was told
			ended := make(chan any, 1)
			go func() {
				defer func() { ended <- recover() }()
				_, _ = h.q.Wait(h.t.Context(), claim("a"), 0, panics)
			}()
			synctest.Wait()
			if p := <-ended; p != "defect" {
				t.Errorf("got %v, want the panic", p)
			}
			h.wantNothing()
		}
		b := h.comes("b")
		went := make(chan any, 1)
		go func() {
			defer func() { went <- recover() }()
			_, _ = h.q.Wait(h.t.Context(), claim("a"), 0, panics)
		}()
		synctest.Wait()
		c := h.comes("c")
		h.q.Freed()
		synctest.Wait()
		h.frees(2)
		<-went
		h.want(b, nil)
		h.want(c, nil)
	})
}

func TestWait_FullQueueRefusesAtOnce(t *testing.T) {
	inHall(t, 0, queue.Config{MaxWaiting: 2, Timeout: time.Hour}, func(h *hall) {
		h.comes("a")
		h.comes("a")
		h.want(h.comes("a"), queue.ErrFull)
		h.q.Configure(queue.Config{MaxWaiting: 3, Timeout: time.Hour})
		h.comes("a")
		h.wantWaiting(3)
		h.q.Configure(queue.Config{})
		h.want(h.comes("a"), queue.ErrFull)
		h.wantWaiting(3) // they go on waiting
	})
}

// One tenant has the whole room while it is alone, and half of it beside another.
func TestWait_TenantThatFillsTheQueueGivesWay(t *testing.T) {
	inHall(t, 0, queue.Config{MaxWaiting: 10, Timeout: time.Hour}, func(h *hall) {
		var greedy []<-chan got
		for range 10 {
			greedy = append(greedy, h.comes("greedy"))
		}
		for i := range 5 {
			h.comes("b")
			h.want(greedy[9-i], queue.ErrFull) // its newest
			h.wantWaiting(10)
		}
		h.want(h.comes("b"), queue.ErrFull)
		h.want(h.comes("greedy"), queue.ErrFull)
		h.comes("c")
		h.wantWaiting(10)
	})
}

func TestWait_TenantAtItsLimitIsRefusedAtOnce(t *testing.T) {
	inHall(t, 3, queue.Config{MaxWaiting: 10, Timeout: time.Hour, MaxPerTenant: 2}, func(h *hall) {
		h.want(h.comes("a"), nil)
		h.want(h.comes("a"), nil)
		h.want(h.comes("a"), queue.ErrTenant)
		h.want(h.comes("b"), nil)
		waits := h.comes("b") // it counts too
		h.wantWaiting(1)
		h.want(h.comes("b"), queue.ErrTenant)
		h.goes("a")
		h.want(waits, nil)
		h.want(h.comes("b"), queue.ErrTenant)
		h.goes("b")
		h.want(h.comes("b"), nil)
		for _, tenant := range []string{"a", "b", "b"} {
			h.goes(tenant)
		}
		h.wantNothing()
	})
}

func TestClose_EndsAllWaitsAndLetsNoneBegin(t *testing.T) {
	inHall(t, 1, roomy(), func(h *hall) {
		h.want(h.comes("a"), nil)
		b, c := h.comes("b"), h.comes("c")
		h.q.Close()
		synctest.Wait()
		h.want(b, queue.ErrClosed)
		h.want(c, queue.ErrClosed)
		h.want(h.comes("d"), queue.ErrClosed)
		h.goes("a")
		h.want(h.comes("d"), nil)
		h.goes("d")
		h.wantNothing()
	})
}

// The turn that is just trying is not told twice: it gets its place, or finds out by itself.
func TestClose_WhileATurnTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := queue.New(roomy())
		trying, gate := make(chan struct{}), make(chan struct{})
		tries := 0
		ended := make(chan error, 1)
		go func() {
			_, err := q.Wait(t.Context(), claim("a"), 0, func() bool {
				if tries++; tries == 2 {
					close(trying)
					<-gate
				}
				return false
			})
			ended <- err
		}()
		<-trying
		q.Close()
		close(gate)
		if err := <-ended; !errors.Is(err, queue.ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
	})
}
