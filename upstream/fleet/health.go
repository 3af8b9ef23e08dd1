package fleet

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"carryover/upstream"
)

// Every engine is asked every four seconds, and given two: vLLM answers /health and
// /metrics from its API server without queueing behind requests. What /metrics tells
// counts for five seconds, so turns rarely wait for it.
const (
	probeEvery = 4 * time.Second
	probeLimit = 2 * time.Second
)

// Run keeps up to date which engines answer and which start of each is alive, and has each
// new start probed: all engines at once and then every four seconds, and new ones when they come, until ctx ends. It
// returns nil.
func (f *Fleet) Run(ctx context.Context) error {
	tick := time.NewTicker(f.every)
	defer tick.Stop()
	select {
	case <-f.came: // those of the first round
	default:
	}
	f.probeAll(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			f.probeAll(ctx)
		case <-f.came:
			probe(ctx, f.unasked())
		}
	}
}

// probe asks engines for their health, and those that are well for all the rest.
func probe(ctx context.Context, engines []*Engine) {
	var group sync.WaitGroup
	for _, e := range engines {
		group.Go(func() {
			healthy := e.healthy(ctx)
			if ctx.Err() == nil {
				e.probed(healthy)
			}
			if healthy {
				e.follow(ctx)
			}
		})
	}
	group.Wait()
}

func (f *Fleet) probeAll(ctx context.Context) {
	probe(ctx, slices.Concat(f.Engines(upstream.RolePrefill), f.Engines(upstream.RoleDecode)))
	f.mu.Lock()
	f.forgetDeparted()
	f.mu.Unlock()
	f.eject(upstream.RolePrefill)
	f.eject(upstream.RoleDecode)
}

// follow reads which start is alive, and begins to find out what it can do. That
// takes longer than an engine that is busy may keep the others waiting.
func (e *Engine) follow(ctx context.Context) {
	e.Refresh(ctx)
	if ctx.Err() == nil {
		e.followModels(ctx)
	}
	if incarnation := e.Fresh(); incarnation.Known() && e.fleet.cfg.ProbeIDs && ctx.Err() == nil {
		incarnation.beginProbe(ctx)
	}
}

func (e *Engine) healthy(ctx context.Context) (healthy bool) {
	defer func() {
		if recover() != nil { // a defect in reading an answer must not end the process
			healthy = false
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	// What is said of health does not matter, nor how much.
	status, _, err := e.fleet.cfg.Client.Fetch(ctx, e.Instance(), "/health", "", 4096)
	return status == http.StatusOK && (err == nil || errors.Is(err, upstream.ErrAnswerTooLarge))
}
