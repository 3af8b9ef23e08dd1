package queue_test

import (
	"context"
	"fmt"
	"testing"

	"carryover/server/queue"
)

// What a turn pays that need not wait.
func BenchmarkQueue_Uncontended(b *testing.B) {
	q := queue.New(roomy())
	free := newSlots(1)
	ctx, c := context.Background(), claim("tenant")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := q.Wait(ctx, c, 0, free.take); err != nil {
			b.Fatal(err)
		}
		q.Leave(c)
		free.free.Add(1)
		q.Freed()
	}
}

// What giving a place back costs while 1,000 turns of as many tenants wait and there is no room for them.
func BenchmarkQueue_FreedWhileMany(b *testing.B) {
	q := queue.New(queue.Config{MaxWaiting: 2000, Timeout: roomy().Timeout})
	for i := range 1000 {
		go func() {
			_, _ = q.Wait(context.Background(), claim(fmt.Sprint(i)), 0, func() bool { return false })
		}()
	}
	for {
		if _, _, n := q.Kept(); n == 1000 {
			break
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		q.Freed()
	}
	q.Close()
}
