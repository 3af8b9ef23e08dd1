package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config"
	"carryover/convcache"
	"carryover/server"
	"carryover/server/pins"
	"carryover/upstream"
)

const (
	namedWithin = 12 * time.Second // for sources to name instances of both roles
	askedAtOnce = 16               // instances
)

// survey runs the program on the whole fleet as serve does, without clients, and examines Redis and each instance. The error is a fault in
// this process.
func (d *doctor) survey(ctx context.Context) error {
	cfg, r := d.cfg, d.report
	d.settings()
	cfg.HandBack.Mode, cfg.Conversation.TeachShapes = string(pins.HandBackOff), "off" // the pairs learn their shape
	p, deps, err := app.NewParts(app.Configured{Config: cfg}, d.logger)
	if err != nil {
		return err
	}
	p.Alongside = nil // background work of turns; the pairs have it
	p.Server = server.New(app.NewServerConfig(cfg, d.logger), deps)
	err = beside(ctx, p, func(ctx context.Context, _ string) {
		d.store(ctx, p)
		command.LookUntil(ctx, namedWithin, func() bool {
			return len(p.Fleet.Engines(upstream.RolePrefill)) > 0 && len(p.Fleet.Engines(upstream.RoleDecode)) > 0
		})
		d.prefill, d.decode = d.ask(ctx, p, upstream.RolePrefill), d.ask(ctx, p, upstream.RoleDecode)
	})
	if err != nil {
		r.found(whereSettings, codeDiscovery, err.Error())
	}
	what := ""
	switch {
	case len(d.prefill)+len(d.decode) == 0:
		what = "no instance is known"
	case len(d.prefill) == 0:
		what = "no prefill instance is known"
	case len(d.decode) == 0:
		what = "no decode instance is known"
	}
	r.check(whereSettings, codeNoInstance, what)
	return nil
}

// settings examines values that Load accepts and operators seldom mean.
func (d *doctor) settings() {
	if !d.cfg.Connector.ReusesKV() {
		return
	}
	shortest := d.cfg.Store.DecoderKVTTL
	for _, i := range d.cfg.Decode {
		shortest = min(shortest, i.KVTTL)
	}
	useful := config.FormatDuration(shortest - pins.MarginWithExpiry)
	d.report.check(whereSettings, codeTTLOrder, problem(d.cfg.Store.TTL <= shortest-pins.MarginWithExpiry,
		"store.ttl is %s, and decode keeps its blocks for %s: tickets end after %s",
		config.FormatDuration(d.cfg.Store.TTL), config.FormatDuration(shortest), useful), "{ttl}", useful)
}

func (d *doctor) store(ctx context.Context, p *app.Proxy) {
	if p.Tickets.Shared == nil {
		return
	}
	r := d.report
	ctx, cancel := context.WithTimeout(ctx, app.StoreCheckTimeout)
	defer cancel()
	err := p.Tickets.Shared.Check(ctx)
	if errors.Is(err, convcache.ErrRemoteForbids) {
		r.found(whereRedis, codeRedisForbids, strings.TrimPrefix(err.Error(), convcache.ErrRemoteForbids.Error()+": "))
		return
	}
	seen, looked := p.Tickets.Redis.Look(ctx)
	if err = errors.Join(err, looked); err != nil {
		r.found(whereRedis, codeRedisDown, config.StoreName(d.cfg.Redis)+": "+err.Error(), "{limit}", config.FormatDuration(d.cfg.Timeouts.Store))
		return
	}
	r.holds(whereRedis, codeRedisDown, "")
	r.holds(whereRedis, codeRedisForbids, "")
	apart := seen.Apart.Abs()
	r.check(whereRedis, codeRedisClock, problem(apart <= clockSlack, "its clock and ours differ by %s", apart.Round(time.Millisecond)))
	r.check(whereRedis, codeRedisEviction, problem(seen.MaxMemory == 0 || seen.Eviction == "volatile-ttl", "maxmemory-policy is %s", seen.Eviction))
}

func (d *doctor) ask(ctx context.Context, p *app.Proxy, role upstream.Role) []*examined {
	engines := p.Fleet.Engines(role)
	list := make([]*examined, len(engines))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(askedAtOnce)
	for i, engine := range engines {
		list[i] = &examined{Instance: *engine.Instance()}
		d.report.place(list[i].where())
		group.Go(func() error {
			about := interview{list[i], d, p.Client, engine}
			about.ask(ctx)
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
	return list
}

// beside runs a wired program on a loopback address, base, during work. The context of work ends with the program; the error says why the
// program ended early.
func beside(ctx context.Context, p *app.Proxy, work func(ctx context.Context, base string)) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		p.Close()
		return fmt.Errorf("listen: %w", err)
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx)) // a graceful end follows the end of ctx
	working, failed := context.WithCancel(ctx)
	defer failed()
	ended := make(chan error, 1) // one result
	go func() {
		ended <- p.Run(running, listener)
		failed()
	}()
	work(working, "http://"+listener.Addr().String())
	stop()
	return <-ended
}
