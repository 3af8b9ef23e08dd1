package upstream

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// The prober asks every instance every four seconds and gives each two: vLLM
// answers /health and /metrics from its API server without queueing behind
// requests. What /metrics tells counts for five seconds, so turns rarely wait for
// it.
const (
	probeEvery = 4 * time.Second
	probeLimit = 2 * time.Second
)

// Prober keeps the health of a pool's instances up to date, and which start of
// each is alive. It has each new start probed for what it can do, so that turns
// rarely wait for that either; a nil Capability leaves it to them.
type Prober struct {
	Pool         *Pool
	Client       *Client
	Incarnations *Incarnations
	Capability   *Capability
}

// Run probes all instances at once and then every four seconds until ctx ends.
// It returns nil.
func (p *Prober) Run(ctx context.Context) error {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		p.probeAll(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (p *Prober) probeAll(ctx context.Context) {
	var group sync.WaitGroup
	for _, role := range []Role{RolePrefill, RoleDecode} {
		for _, instance := range p.Pool.Instances(role) {
			group.Go(func() {
				healthy := p.probe(ctx, instance)
				if ctx.Err() == nil {
					p.Pool.setHealth(instance.Role, instance.Name, healthy)
				}
				if healthy {
					p.refresh(ctx, instance)
				}
			})
		}
	}
	group.Wait()
}

// refresh reads which start is alive, and begins to find out what it can do. That
// takes longer than an engine that is busy may keep the others waiting.
func (p *Prober) refresh(ctx context.Context, instance *Instance) {
	p.Incarnations.Refresh(ctx, instance)
	facts, ok := p.Incarnations.Known(instance)
	if ok && p.Capability != nil && ctx.Err() == nil {
		p.Capability.Begin(ctx, instance, facts.Incarnation)
	}
}

func (p *Prober) probe(ctx context.Context, instance *Instance) (healthy bool) {
	defer func() {
		if recover() != nil { // a defect in reading an answer must not end the process
			healthy = false
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	// What is said of health does not matter, nor how much.
	status, _, err := p.Client.Fetch(ctx, instance, "/health", "", 4096)
	return status == http.StatusOK && (err == nil || errors.Is(err, ErrAnswerTooLarge))
}
