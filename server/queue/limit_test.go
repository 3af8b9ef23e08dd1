package queue_test

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"carryover/server/queue"
)

// Of two turns that find no place at the same moment one waits for the only place that their tenant may have, and not both.
func TestWait_TenantsLimitHoldsForTurnsThatComeTogether(t *testing.T) {
	cfg := roomy()
	cfg.MaxPerTenant = 1
	for round := range 2000 {
		q := queue.New(cfg)
		ctx, leave := context.WithCancel(t.Context())
		var both sync.WaitGroup
		returned := make(chan struct{}, 2)
		for range 2 {
			both.Go(func() {
				_, _ = q.Wait(ctx, claim("a"), 0, func() bool {
					runtime.Gosched()
					return false
				})
				returned <- struct{}{}
			})
		}
		for len(returned)+q.Waiting() < 2 {
			runtime.Gosched()
		}
		waiting := q.Waiting()
		leave()
		both.Wait()
		if waiting > 1 {
			t.Fatalf("round %d: %d turns wait", round, waiting)
		}
	}
}
