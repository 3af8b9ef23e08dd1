package server

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// background runs the work that outlives a client or belongs to no turn, and can end all of it.
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

// run starts work that has a time limit of its own. what and id name the work in the log if it panics.
func (b *background) run(what, id string, work func()) {
	b.group.Go(func() {
		defer b.survive(what, id)
		work()
	})
}

// repeat starts a task, which has a round once per period and whenever early receives a value.
func (b *background) repeat(name string, period time.Duration, early <-chan struct{}, round func(context.Context)) {
	b.run("task", name, func() { b.every(b.ctx, period, early, "task", name, round) })
}

// every calls round once per period until ctx ends, and also whenever early, which may be nil, receives a value. A panic ends one round
// only.
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

// wait returns when all of the work has ended.
func (b *background) wait() { b.group.Wait() }

// survive keeps a panic in background work from ending the process. It must be deferred.
func (b *background) survive(what, id string) {
	if p := recover(); p != nil {
		b.logger.Error("panic after a turn", what, id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
}
