package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"carryover/server/queue"
)

// Turns of several tenants come, wait, give up, get places of two classes and give them back, all at once. No turn may wait while a
// place of its class is free: once all that hold places have gone, every turn that has neither left nor been refused has had one.
// A wake-up that is lost leaves a turn waiting for ever; the test ends it with an error.
func TestModel_NoWakeUpIsLost(t *testing.T) {
	const seeds = 400
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1))
			q := queue.New(queue.Config{MaxWaiting: 20 + random.IntN(200), Timeout: time.Hour, MaxPerTenant: random.IntN(2) * 60})
			classes := map[string]*slots{"p": newSlots(1 + random.IntN(3)), "d": newSlots(1 + random.IntN(3))}
			whole := map[string]int64{"p": classes["p"].free.Load(), "d": classes["d"].free.Load()}
			stuck, giveUp := context.WithTimeout(t.Context(), 10*time.Second)
			defer giveUp()
			var all sync.WaitGroup
			for i := range 2 + random.IntN(3)*random.IntN(40) { // a few, so that one lost wake-up is the last one
				c := queue.Claim{Tenant: fmt.Sprint(i % 5), Class: []string{"p", "d"}[random.IntN(2)]}
				impatient, spins := random.IntN(4) == 0, random.IntN(2000)
				all.Go(func() {
					ctx, leave := context.WithCancel(stuck)
					defer leave()
					if impatient {
						all.Go(func() { spin(spins); leave() })
					}
					_, err := q.Wait(ctx, c, 0, func() bool {
						took := classes[c.Class].take()
						runtime.Gosched() // what is freed here is free before the queue knows how the try went
						return took
					})
					switch {
					case err == nil:
						spin(spins)
						q.Leave(c)
						classes[c.Class].free.Add(1)
						q.Freed()
					case stuck.Err() != nil:
						t.Errorf("a turn of class %s waits while %d of %d places are free", c.Class, classes[c.Class].free.Load(), whole[c.Class])
					case errors.Is(err, context.Canceled) && impatient, errors.Is(err, queue.ErrFull), errors.Is(err, queue.ErrTenant):
					default:
						t.Errorf("got %v", err)
					}
				})
			}
			all.Wait()
			for class, p := range classes {
				if p.free.Load() != whole[class] {
					t.Errorf("%d places of class %s at the end, want %d", p.free.Load(), class, whole[class])
				}
			}
			if held, lines, waiting := q.Kept(); held != 0 || lines != 0 || waiting != 0 {
				t.Errorf("%d claims, %d lines and %d turns are left", held, lines, waiting)
			}
		})
	}
}

// spin lets a moment pass in which others run.
func spin(n int) {
	sink := 0
	for i := range n {
		sink += i
	}
	_ = sink
}
