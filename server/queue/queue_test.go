package queue_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"carryover/server/queue"
)

func TestWait_SlotThatIsFreeIsHadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 1, queue.Config{})
		h.want(h.comes(t.Context(), "a"), nil)
		h.goes("a")
		h.wantNothing()
	})
}

func TestWait_TurnIsServedWhenASlotIsFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 1, roomy())
		h.want(h.comes(t.Context(), "a"), nil)
		b := h.comes(t.Context(), "a")
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
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 0, roomy())
		var all []<-chan got
		for range 5 {
			all = append(all, h.comes(t.Context(), "a"))
		}
		h.slots.free.Add(3)
		h.q.Freed()
		synctest.Wait()
		for _, ended := range all[:3] {
			h.want(ended, nil)
		}
		h.wantWaiting(2)
		h.slots.free.Add(2)
		h.q.Freed()
		synctest.Wait()
		h.wantWaiting(0)
	})
}

// What is freed behind the back of a try is seen by another one, which nothing else would bring about.
func TestWait_SlotFreedDuringATryIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 0, roomy())
		trying, gate := make(chan struct{}), make(chan struct{})
		tries := 0
		ended := make(chan error, 1)
		go func() {
			_, err := h.q.Wait(t.Context(), claim("a"), 0, func() bool {
				took := h.slots.take()
				if tries++; tries == 2 {
					close(trying)
					<-gate
				}
				return took
			})
			ended <- err
		}()
		<-trying
		h.slots.free.Add(1)
		h.q.Freed()
		close(gate)
		if err := <-ended; err != nil || tries != 3 {
			t.Errorf("got %v with %d tries, want the place with the third", err, tries)
		}
	})
}

func TestWait_EndsWithItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 0, queue.Config{MaxWaiting: 10, Timeout: 10 * time.Second})
		began := time.Now()
		if _, err := h.q.Wait(t.Context(), claim("a"), 4*time.Second, h.slots.take); !errors.Is(err, queue.ErrTimeout) || time.Since(began) != 6*time.Second {
			t.Errorf("got %v after %s, want ErrTimeout after 6s: it had waited for 4", err, time.Since(began))
		}
		if took, err := h.q.Wait(t.Context(), claim("a"), 10*time.Second, h.slots.take); !errors.Is(err, queue.ErrTimeout) || took != 0 {
			t.Errorf("got %v after %s, want ErrTimeout at once", err, took)
		}
		h.slots.free.Add(1)
		if _, err := h.q.Wait(t.Context(), claim("a"), 10*time.Second, h.slots.take); err != nil {
			t.Errorf("got %v, want the place that is free", err)
		}
		h.goes("a")
		h.wantNothing()
	})
}

func TestWait_ClientThatLeavesGoesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 0, roomy())
		gone := errors.New("gone")
		ctx, leave := context.WithCancelCause(t.Context())
		a, b := h.comes(ctx, "a"), h.comes(t.Context(), "b")
		leave(gone)
		synctest.Wait()
		h.want(a, gone)
		h.wantWaiting(1)
		h.slots.free.Add(1)
		h.q.Freed()
		synctest.Wait()
		h.want(b, nil)
		h.goes("b")
		h.wantNothing()
	})
}

// The turn that was told of a place leaves before it has tried.
func TestWait_TurnThatLeavesInsteadOfTryingHandsOn(t *testing.T) {
	for range 100 { // a select with two ways takes one at random
		synctest.Test(t, func(t *testing.T) {
			h := newHall(t, 0, roomy())
			ctx, leave := context.WithCancel(t.Context())
			a, b := h.comes(ctx, "a"), h.comes(t.Context(), "b")
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
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 0, roomy())
		panics := func() bool { panic("defect") }
		for range 2 { // at once, and of a turn that was told
			ended := make(chan any, 1)
			go func() {
				defer func() { ended <- recover() }()
				_, _ = h.q.Wait(t.Context(), claim("a"), 0, panics)
			}()
			synctest.Wait()
			if p := <-ended; p != "defect" {
				t.Errorf("got %v, want the panic", p)
			}
			h.wantNothing()
		}
		b := h.comes(t.Context(), "b")
		went := make(chan any, 1)
		go func() {
			defer func() { went <- recover() }()
			_, _ = h.q.Wait(t.Context(), claim("a"), 0, panics)
		}()
		synctest.Wait()
		c := h.comes(t.Context(), "c")
		h.q.Freed()
		synctest.Wait()
		h.slots.free.Add(2)
		h.q.Freed()
		synctest.Wait()
		<-went
		h.want(b, nil)
		h.want(c, nil)
	})
}

func TestWait_FullQueueRefusesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 0, queue.Config{MaxWaiting: 2, Timeout: time.Hour})
		h.comes(t.Context(), "a")
		h.comes(t.Context(), "a")
		h.want(h.comes(t.Context(), "a"), queue.ErrFull)
		h.q.Configure(queue.Config{MaxWaiting: 3, Timeout: time.Hour})
		h.comes(t.Context(), "a")
		h.wantWaiting(3)
		h.q.Configure(queue.Config{})
		h.want(h.comes(t.Context(), "a"), queue.ErrFull)
		h.wantWaiting(3) // they go on waiting
		h.q.Close()
		synctest.Wait()
	})
}

// One tenant has the whole room while it is alone, and half of it beside another.
func TestWait_TenantThatFillsTheQueueGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 0, queue.Config{MaxWaiting: 10, Timeout: time.Hour})
		var greedy []<-chan got
		for range 10 {
			greedy = append(greedy, h.comes(t.Context(), "greedy"))
		}
		for i := range 5 {
			h.comes(t.Context(), "b")
			h.want(greedy[9-i], queue.ErrFull) // its newest
			h.wantWaiting(10)
		}
		h.want(h.comes(t.Context(), "b"), queue.ErrFull)
		h.want(h.comes(t.Context(), "greedy"), queue.ErrFull)
		h.comes(t.Context(), "c")
		h.wantWaiting(10)
		h.q.Close()
		synctest.Wait()
	})
}

func TestWait_TenantAtItsLimitIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 3, queue.Config{MaxWaiting: 10, Timeout: time.Hour, MaxPerTenant: 2})
		h.want(h.comes(t.Context(), "a"), nil)
		h.want(h.comes(t.Context(), "a"), nil)
		h.want(h.comes(t.Context(), "a"), queue.ErrTenant)
		h.want(h.comes(t.Context(), "b"), nil)
		waits := h.comes(t.Context(), "b") // it counts too
		h.wantWaiting(1)
		h.want(h.comes(t.Context(), "b"), queue.ErrTenant)
		h.goes("a")
		h.want(waits, nil)
		h.want(h.comes(t.Context(), "b"), queue.ErrTenant)
		h.goes("b")
		h.want(h.comes(t.Context(), "b"), nil)
		for _, tenant := range []string{"a", "b", "b"} {
			h.goes(tenant)
		}
		h.wantNothing()
	})
}

func TestClose_EndsAllWaitsAndLetsNoneBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall(t, 1, roomy())
		h.want(h.comes(t.Context(), "a"), nil)
		b, c := h.comes(t.Context(), "b"), h.comes(t.Context(), "c")
		h.q.Close()
		synctest.Wait()
		h.want(b, queue.ErrClosed)
		h.want(c, queue.ErrClosed)
		h.want(h.comes(t.Context(), "d"), queue.ErrClosed)
		h.goes("a")
		h.want(h.comes(t.Context(), "d"), nil)
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
