package queue_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"carryover/server/queue"
)

// slots are a number of places of one class.
type slots struct{ free atomic.Int64 }

func newSlots(n int) *slots {
	p := &slots{}
	p.free.Store(int64(n))
	return p
}

// take takes one if there is one.
func (p *slots) take() bool {
	for {
		n := p.free.Load()
		if n <= 0 {
			return false
		}
		if p.free.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// hall is a queue for places of one class.
type hall struct {
	t      *testing.T
	q      *queue.Queue
	slots  *slots
	served []string // tenants, in the order in which they got a place; for one goroutine at a time
}

// inHall runs a test in a bubble of synctest, and closes the queue at its end.
func inHall(t *testing.T, slots int, cfg queue.Config, test func(h *hall)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &hall{t: t, q: queue.New(cfg), slots: newSlots(slots)}
		test(h)
		h.q.Close()
		synctest.Wait()
	})
}

func claim(tenant string) queue.Claim { return queue.Claim{Tenant: tenant, Class: "turn"} }

// got is how a Wait ended.
type got struct {
	took time.Duration
	err  error
}

// comes has a turn of a tenant wait, and returns when it has its place, or waits. Its end is in the channel.
func (h *hall) comes(tenant string) <-chan got { return h.comesIn(h.t.Context(), tenant) }

func (h *hall) comesIn(ctx context.Context, tenant string) <-chan got {
	h.t.Helper()
	ended := make(chan got, 1)
	go func() {
		took, err := h.q.Wait(ctx, claim(tenant), 0, func() bool {
			if !h.slots.take() {
				return false
			}
			h.served = append(h.served, tenant)
			return true
		})
		ended <- got{took, err}
	}()
	synctest.Wait()
	return ended
}

// goes gives a tenant's place back, and returns when that has had its effect.
func (h *hall) goes(tenant string) {
	h.q.Leave(claim(tenant))
	h.frees(1)
}

// frees makes room for turns, and returns when that has had its effect.
func (h *hall) frees(slots int64) {
	h.slots.free.Add(slots)
	h.q.Freed()
	synctest.Wait()
}

// want checks how a Wait has ended by now.
func (h *hall) want(ended <-chan got, want error) {
	h.t.Helper()
	select {
	case g := <-ended:
		if !errors.Is(g.err, want) {
			h.t.Errorf("got %v, want %v", g.err, want)
		}
	default:
		h.t.Errorf("it still waits, want %v", want)
	}
}

// wantWaiting checks how many turns wait.
func (h *hall) wantWaiting(want int) {
	h.t.Helper()
	if _, _, n := h.q.Kept(); n != want {
		h.t.Errorf("%d turns wait, want %d", n, want)
	}
}

// wantNothing checks that the queue keeps nothing.
func (h *hall) wantNothing() {
	h.t.Helper()
	if held, lines, waiting := h.q.Kept(); held != 0 || lines != 0 || waiting != 0 {
		h.t.Errorf("%d claims, %d lines and %d turns are kept of tenants that hold and wait for nothing", held, lines, waiting)
	}
}

// roomy lets many turns wait for long.
func roomy() queue.Config { return queue.Config{MaxWaiting: 1000, Timeout: time.Hour} }
