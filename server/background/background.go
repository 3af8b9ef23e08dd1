// Package background runs the work that outlives a client or belongs to no turn, and can end all of it.
package background

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// ErrShuttingDown is the cause with which a group ends its context.
var ErrShuttingDown = errors.New("server shutting down")

// AbandonDelay is how long a turn that outlasts the grace period gets to send its error event, once the context has ended.
const AbandonDelay = 5 * time.Second

// Group is all work of a server that runs beside its requests.
type Group struct {
	logger *slog.Logger
	work   sync.WaitGroup
	ctx    context.Context //nolint:containedctx // ends all turns at shutdown; it belongs to no request
	end    context.CancelCauseFunc
}

// New returns a group without work.
func New(logger *slog.Logger) *Group {
	g := &Group{logger: logger}
	g.ctx, g.end = context.WithCancelCause(context.Background())
	return g
}

// Context ends when the group is abandoned. It is the parent of all that must not outlive the server.
func (g *Group) Context() context.Context { return g.ctx }

// Abandon ends the group's context with ErrShuttingDown. Work that has begun ends by itself.
func (g *Group) Abandon() { g.end(ErrShuttingDown) }

// Run starts work that has a time limit of its own. what and id name the work in the log if it panics.
func (g *Group) Run(what, id string, work func()) {
	g.work.Go(func() {
		defer g.survive(what, id)
		work()
	})
}

// Repeat runs round once per period, and whenever early, which may be nil, receives a value, until the group is abandoned. A panic ends one
// round only.
func (g *Group) Repeat(name string, period time.Duration, early <-chan struct{}, round func(context.Context)) {
	g.Run("task", name, func() {
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case <-g.ctx.Done():
				return
			case <-tick.C:
			case <-early:
			}
			func() {
				defer g.survive("task", name)
				round(g.ctx)
			}()
		}
	})
}

// Wait returns when all of the work has ended.
func (g *Group) Wait() { g.work.Wait() }

// survive keeps a panic in background work from ending the process. It must be deferred.
func (g *Group) survive(what, id string) {
	if p := recover(); p != nil {
		g.logger.Error("panic after a turn", what, id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
}
