package server

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// background is the work that runs beside the turns or outlives its client, and the end of it all.
type background struct {
	logger  *slog.Logger
	group   sync.WaitGroup
	ctx     context.Context         //nolint:containedctx // ends all turns at shutdown; it belongs to no request
	abandon context.CancelCauseFunc // ends ctx
}

func newBackground(logger *slog.Logger) *background {
	b := &background{logger: logger}
	b.ctx, b.abandon = context.WithCancelCause(context.Background())
	return b
}

// run begins work that has a bound of its own. what and id name it in the log, should it panic.
func (b *background) run(what, id string, work func()) {
	b.group.Go(func() {
		defer b.survive(what, id)
		work()
	})
}

// every does work again and again until ctx ends, and at once when there is a word in early, which may be nil. A defect ends one
// round, and not those that follow.
func (b *background) every(
	ctx context.Context, period time.Duration, early <-chan struct{}, what, id string, round func(context.Context),
) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-early:
		}
		func() {
			defer b.survive(what, id)
			round(ctx)
		}()
	}
}

// wait returns when all of it has ended.
func (b *background) wait() { b.group.Wait() }

// survive keeps a defect in work that outlives its turn from ending the process.
// It is deferred.
func (b *background) survive(what, id string) {
	if p := recover(); p != nil {
		b.logger.Error("panic after a turn", what, id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
}
