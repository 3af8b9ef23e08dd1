package pick

import (
	"sync"
	"sync/atomic"
	"testing"

	"carryover/server/queue"
)

// A place on an instance is given back once, whichever does it: the turn, or a prefill leg that goes on beside it.
func TestSlot_IsLeftOnce(t *testing.T) {
	(&slot{}).leave() // none
	q := queue.New(queue.Config{MaxPerTenant: 1})
	claim := queue.Claim{Tenant: "t", Class: "c"}
	take := func() error {
		_, err := q.Wait(t.Context(), claim, 0, func() bool { return true })
		return err
	}
	if err := take(); err != nil {
		t.Fatal(err)
	}
	var freed atomic.Int64
	var h slot
	h.take(q, claim, func() { freed.Add(1) })
	var all sync.WaitGroup
	for range 4 {
		all.Go(h.leave)
	}
	all.Wait()
	if n := freed.Load(); n != 1 {
		t.Errorf("the instance was given back %d times, want once", n)
	}
	if first, second := take(), take(); first != nil || second == nil {
		t.Errorf("the tenant of one place gets %v and then %v, want one more place and no other", first, second)
	}
}
