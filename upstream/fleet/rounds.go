package fleet

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"carryover/upstream"
)

// Every engine is asked every four seconds and has two seconds to answer: vLLM answers /health and /metrics from its
// API server, without queueing behind requests. A reading of /metrics counts for five seconds, so turns rarely wait
// for one.
const (
	probeEvery = 4 * time.Second
	probeLimit = 2 * time.Second
)

// rounds is when Run asks engines, and what it has heard.
type rounds struct {
	every    time.Duration
	came     chan struct{}                        // wakes Run: there are engines that were never asked
	answered [upstream.RoleDecode + 1]atomic.Bool // by role: whether any engine has ever answered
	lessons  sync.WaitGroup                       // that run beside the rounds
}

func newRounds() rounds { return rounds{every: probeEvery, came: make(chan struct{}, 1)} }

// soon makes Run ask engines that were never heard before its next round: until they answer they do not count as ready.
func (r *rounds) soon() {
	select {
	case r.came <- struct{}{}:
	default:
	}
}

// Run keeps the health and the incarnations of all engines up to date, and starts the probe of each new incarnation.
// It asks all engines at once, every four seconds, and new engines as soon as they come, until ctx ends. It returns
// nil when its last lesson has ended, too.
func (f *Fleet) Run(ctx context.Context) error {
	tick := time.NewTicker(f.rounds.every)
	defer tick.Stop()
	defer f.rounds.lessons.Wait()
	select {
	case <-f.rounds.came: // the engines of the first round have been asked
	default:
	}
	f.probeAll(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			f.probeAll(ctx)
		case <-f.rounds.came:
			probe(ctx, f.members.Load().unasked())
		}
	}
}

// probe asks engines for their health, and follows those that are healthy.
func probe(ctx context.Context, engines []*Engine) {
	var group sync.WaitGroup
	for _, e := range engines {
		group.Go(func() {
			healthy := e.healthy(ctx)
			if ctx.Err() == nil {
				e.Health.Probed(healthy)
			}
			if healthy {
				e.follow(ctx)
			}
		})
	}
	group.Wait()
}

func (f *Fleet) probeAll(ctx context.Context) {
	probe(ctx, slices.Collect(f.members.Load().all))
	f.mu.Lock()
	f.forgetDeparted()
	f.mu.Unlock()
	f.eject(upstream.RolePrefill)
	f.eject(upstream.RoleDecode)
}

// follow reads the engine's incarnation and starts to find out what it can do, without waiting for the result: a busy
// engine must not delay the others.
func (e *Engine) follow(ctx context.Context) {
	e.Refresh(ctx)
	if ctx.Err() == nil {
		e.models.follow(ctx)
	}
	if incarnation := e.Fresh(); incarnation.Known() && e.fleet.cfg.ProbeIDs && ctx.Err() == nil {
		incarnation.Capability.Begin(ctx)
		e.teach(ctx, incarnation)
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
	// The body of the answer does not matter.
	status, _, err := e.fleet.cfg.Client.Fetch(ctx, e.Instance(), "/health", "", 4096)
	return status == http.StatusOK && (err == nil || errors.Is(err, upstream.ErrAnswerTooLarge))
}
