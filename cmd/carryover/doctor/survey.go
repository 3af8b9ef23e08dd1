package doctor

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"carryover/cmd/carryover/app"
	"carryover/server"
	"carryover/server/pins"
	"carryover/server/quarantine"
	"carryover/upstream"
)

// Bounds of the survey.
const (
	// namedWithin is how long sources get to name instances of both roles.
	namedWithin = 12 * time.Second
	// lookEvery is the interval between looks for a change.
	lookEvery = 20 * time.Millisecond
	// quarantinesWithin is longer than a replica needs to hear of a quarantine.
	quarantinesWithin = 3 * time.Second
	// askedAtOnce is how many instances are asked at the same time.
	askedAtOnce = 16
)

// survey runs the program on the whole fleet as serve does, but without clients, and asks each instance, and Redis, about itself. The
// error is a fault in the set-up of this process.
func (d *doctor) survey(ctx context.Context) error {
	cfg := d.cfg
	cfg.HandBack.Mode = string(pins.HandBackOff)
	if d.options.noTurns { // the probe for forwarded ids is a completion
		cfg.Proof.Mode, cfg.Proof.Models = string(server.ProofHistory), nil
	}
	p, deps, err := app.NewParts(app.Configured{Config: cfg}, d.logger)
	if err != nil {
		return err
	}
	p.Alongside = nil // what turns need; the pairs have it
	quarantines := &quarantinesSeen{SharedIncarnations: deps.Shared.Incarnations}
	if deps.Shared.Incarnations != nil {
		deps.Shared.Incarnations = quarantines
	}
	p.Server = server.New(app.NewServerConfig(cfg, d.logger), deps)
	return beside(ctx, p, func(_ string, failed <-chan error) {
		d.store(ctx, p)
		if err := awaitInstances(ctx, p, failed); err != nil {
			d.report.found(whereSettings, codeDiscovery, err.Error())
			return
		}
		d.prefill, d.decode = d.ask(ctx, p, upstream.RolePrefill), d.ask(ctx, p, upstream.RoleDecode)
		d.agents(ctx, p)
		if deps.Shared.Incarnations != nil {
			quarantines.await(ctx)
		}
		for _, e := range d.prefill {
			if !e.answers {
				continue
			}
			what := ""
			if engine := p.Fleet.Engine(e.Role, e.Name); engine != nil && engine.Quarantined() {
				what = "a replica has quarantined its start " + e.start
			}
			d.report.check(e.where(), codeQuarantined, what, "{name}", e.Name)
		}
	})
}

// beside runs a wired program on a loopback address, whose URL is base, while work lasts. failed gets why it has ended before.
func beside(ctx context.Context, p *app.Proxy, work func(base string, failed <-chan error)) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		p.Close()
		return fmt.Errorf("listen: %w", err)
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx)) // it ends in order when ctx has ended
	defer stop()
	failed, ended := make(chan error, 1), make(chan struct{}) // one result, read once
	go func() {
		defer close(ended)
		failed <- p.Run(running, listener)
	}()
	work("http://"+listener.Addr().String(), failed)
	stop()
	<-ended
	return nil
}

// awaitInstances waits until instances of both roles are known. The error says why the sources have none.
func awaitInstances(ctx context.Context, p *app.Proxy, failed <-chan error) error {
	limit := time.NewTimer(namedWithin)
	defer limit.Stop()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if len(p.Fleet.Engines(upstream.RolePrefill)) > 0 && len(p.Fleet.Engines(upstream.RoleDecode)) > 0 {
			return nil
		}
		select {
		case err := <-failed:
			return fmt.Errorf("the program has ended: %w", err)
		case <-limit.C:
			return nil // the roles say which one is missing
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// ask asks the instances of a role about themselves.
func (d *doctor) ask(ctx context.Context, p *app.Proxy, role upstream.Role) []*examined {
	engines := p.Fleet.Engines(role)
	list := make([]*examined, len(engines))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(askedAtOnce)
	for i, engine := range engines {
		list[i] = &examined{Instance: *engine.Instance()}
		d.report.place(list[i].where())
		group.Go(func() error {
			about := interview{list[i], d.report, p.Client, engine, d.asksTokens(), !d.options.noTurns}
			about.ask(ctx)
			return nil
		})
	}
	_ = group.Wait() // nothing returns an error
	return list
}

// quarantinesSeen notices when this program has read the quarantines of other replicas.
type quarantinesSeen struct {
	quarantine.SharedIncarnations

	mu     sync.Mutex // guards rounds
	rounds int        // that have ended
}

// QuarantinedIncarnations implements quarantine.SharedIncarnations.
func (b *quarantinesSeen) QuarantinedIncarnations(ctx context.Context, starts []string) ([]bool, error) {
	quarantined, err := b.SharedIncarnations.QuarantinedIncarnations(ctx, starts)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rounds++
	return quarantined, err
}

func (b *quarantinesSeen) ended() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rounds
}

// await returns when a round has ended that began after the call: the second one that ends from now on.
func (b *quarantinesSeen) await(ctx context.Context) {
	before := b.ended()
	lookUntil(ctx, quarantinesWithin, func() bool { return b.ended() >= before+2 })
}

// lookUntil waits, for a limited time, until holds returns true.
func lookUntil(ctx context.Context, limit time.Duration, holds func() bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
