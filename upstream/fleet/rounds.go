package fleet

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/health"
)

// vLLM answers /health and /metrics from its API server, without queueing behind requests. A reading counts for five
// seconds, so turns rarely wait for one.
const (
	probeEvery = 4 * time.Second
	probeLimit = 2 * time.Second
)

// Run keeps health and incarnations of all engines up to date, and probes new incarnations. It asks all engines at once
// every four seconds, and new ones immediately, until ctx ends. It returns nil after the last lesson.
func (f *Fleet) Run(ctx context.Context) error {
	tick := time.NewTicker(f.every)
	defer tick.Stop()
	defer f.lessons.Wait()
	select {
	case <-f.came: // after the first round
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
			var fresh []*Engine // not heard since they came or last refused a connection
			for e := range f.members.Load().all {
				if !e.Health.HasAnswered() {
					fresh = append(fresh, e)
				}
			}
			probe(ctx, fresh)
		}
	}
}

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
	f.forget(nil)
	f.mu.Unlock()
	f.eject(upstream.RolePrefill)
	f.eject(upstream.RoleDecode)
}

// Quarantined engines count as out.
func (f *Fleet) eject(role upstream.Role) {
	engines := f.Engines(role)
	members := make([]health.Member, len(engines))
	for i, e := range engines {
		members[i] = health.Member{Health: &e.Health, Weight: e.Instance().Weight, Out: e.Quarantined()}
	}
	health.Eject(members)
}

// follow reads the incarnation and starts to find out what it can do, without waiting: a busy engine must not delay the
// others.
func (e *Engine) follow(ctx context.Context) {
	e.Refresh(ctx)
	if ctx.Err() == nil {
		e.followModels(ctx)
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
	status, _, err := e.fleet.cfg.Client.Fetch(ctx, e.Instance(), "/health", "", 4096)
	return status == http.StatusOK && (err == nil || errors.Is(err, upstream.ErrAnswerTooLarge))
}

// teach starts to teach a prefill incarnation the common shapes of requests. A later round teaches what is left when the
// engine gets work; a busy engine learns from turns.
func (e *Engine) teach(ctx context.Context, s *Incarnation) {
	if !e.fleet.cfg.TeachShapes || e.Role != upstream.RolePrefill || !e.idle(s) {
		return
	}
	e.fleet.lessons.Go(func() {
		shown := s.Lessons.Teach(ctx, e.awaitModels(ctx), func() bool { return e.idle(s) })
		log := e.fleet.cfg.Logger.With("prefill", e.Name, "incarnation", s.id)
		if len(shown.Different) > 0 {
			log.Warn("tokenize differs from what prefill renders; requests of these shapes reuse nothing", "shapes", shown.Different)
		}
		if shown.Equal+len(shown.Different)+shown.Unknown > 0 {
			log.Debug("prefill was taught shapes of requests", "equal", shown.Equal, "different", len(shown.Different), "refused", shown.Unknown)
		}
	})
}

// idle reports whether a request of ours delays no turn: the engine runs this incarnation, is up, and has no attempt of
// ours and no waiting request.
func (e *Engine) idle(s *Incarnation) bool {
	return s.latest() && !e.gone.Load() && e.Health.Usable() && !e.Quarantined() && e.ours() == 0 && e.load.Load().Waiting == 0
}
