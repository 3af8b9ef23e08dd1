package load

import (
	"context"
	"sync"
	"time"
)

// How streams are opened. The first round is not measured: it takes what a contender needs once, not for each stream.
const (
	openTogether = 64
	openFirst    = 50
)

// openAll opens all streams, holds them for the time of the measurement, and leaves them. A stream that has ended by itself, correctly,
// counts as a turn; one that is left does not count.
func (r *run) openAll(ctx context.Context) error {
	w := &r.Workload
	r.openMany(ctx, min(openFirst, w.Conversations), func() {})
	for _, t := range r.totals { // of the first round
		*t = tally{why: t.why}
	}
	r.begins()
	began := time.Now()
	r.openMany(ctx, w.Conversations, func() {
		r.Held()
		_ = wait(ctx, w.Time) // ctx is checked below
		r.ends(began)
	})
	return ctx.Err()
}

// openMany opens streams, some at a time. When all have had a token, it calls held, and then leaves them.
func (r *run) openMany(ctx context.Context, n int, held func()) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	var reading, opening sync.WaitGroup
	places := make(chan struct{}, openTogether)
	for range n {
		t := r.newTalk()
		places <- struct{}{}
		opening.Add(1)
		t.atToken = sync.OnceFunc(func() {
			<-places
			opening.Done()
			t.history = history{} // it was sent
			if t.prefill != nil {
				t.prefill.close()
			}
		})
		reading.Go(func() {
			defer t.close()
			t.beginConversation(1)
			if failed := t.turn(ctx); failed != nil && ctx.Err() == nil {
				t.failed(failed, r.measuring())
			}
			t.atToken() // if it never came
		})
	}
	opening.Wait()
	held()
	leave()
	reading.Wait()
}
