// Package app is the composition root: it chooses implementations, wires the program (wire.go) and runs it.
//
// OpenTelemetry's SDK reads its standard variables, except for those that turn exports on (telemetry.go). telemetry.go and meters.go make
// the exporters; package telemetry defines spans and metrics.
//
// A reload by SIGHUP or POST /admin/reload changes only settings with Live in the table (reload.go).
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"

	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config"
	"carryover/convcache"
	"carryover/server"
	"carryover/server/events"
	"carryover/server/journal"
	"carryover/server/record"
	"carryover/server/telemetry"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/routing"
)

// Serve runs the proxy on the configured address until ctx ends.
func Serve(ctx context.Context, cfg Configured, stderr io.Writer) error {
	logger, level := NewLogger(cfg.Log, stderr)
	p, err := NewProxy(cfg, logger)
	if err != nil {
		return err
	}
	p.Level = level
	return p.Serve(ctx, cfg, logger)
}

// Proxy is a wired server with everything that runs beside it.
type Proxy struct {
	Server    *server.Server
	Journal   *journal.Journal // the last turns
	Events    *events.List     // the last events, for operators
	HashID    func(id string) [8]byte
	Telemetry exporters
	Fleet     *fleet.Fleet
	kvEvents  *kvEvents                   // KV events of instances
	Probe     func(context.Context) error // keeps the fleet up to date
	Sources   sources
	own       ownPorts
	Level     *slog.LevelVar // of the log
	Alongside []func(context.Context) error
	Client    *upstream.Client
	Tickets   tickets
}

// NewProxy wires the program. Observers get each finished turn.
func NewProxy(cfg Configured, logger *slog.Logger, observers ...record.Observer) (*Proxy, error) {
	p, deps, err := NewParts(cfg, logger)
	if err != nil {
		return nil, err
	}
	p.Journal = journal.New(journal.Config{})
	deps.Observers = slices.Concat(deps.Observers, []record.Observer{p.Journal.Observe}, observers)
	if err := p.trace(cfg.Telemetry, &deps, logger); err != nil {
		p.Close()
		return nil, err
	}
	settings := NewServerConfig(cfg.Config, logger)
	settings.Tell = p.Events.Tell
	p.Server = server.New(settings, deps)
	return p, nil
}

type exporters struct {
	Meters  *meters
	tracing *tracing // nil if no traces are exported
}

func (p *Proxy) trace(cfg telemetryConfig, deps *server.Deps, logger *slog.Logger) (err error) {
	if cfg.traces == "" {
		return nil
	}
	if p.Telemetry.tracing, err = openTracing(cfg, logger); err != nil {
		return err
	}
	tracer := p.Telemetry.tracing.tracer()
	deps.Sample, deps.Observers = telemetry.Sample(tracer), append(deps.Observers, telemetry.Spans(tracer))
	return nil
}

// Serve checks the store and serves the configured address until ctx ends.
func (p *Proxy) Serve(ctx context.Context, cfg Configured, logger *slog.Logger) error {
	defer p.Close()
	if err := p.Tickets.check(ctx, logger); err != nil {
		return err
	}
	address := net.JoinHostPort(cfg.Listen.Host, strconv.Itoa(cfg.Listen.Port))
	listener, err := ListenAt(ctx, address, "a port with --port")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	reload := &Reloader{Again: cfg.Again, Proxy: p, Logger: logger, Cfg: cfg.Config}
	operators, err := OpenAdmin(ctx, cfg.Admin)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	p.Alongside = append(p.Alongside, reload.onHangup())
	if operators != nil {
		logger.Info("serving operators", "admin_address", operators.Addr().String(), "page", PageAt(operators))
		p.Alongside = append(p.Alongside, func(ctx context.Context) error {
			return p.ServeAdmin(ctx, operators, cfg.Admin.Token, reload.Reload, logger)
		})
	}
	logger.Info("serving", "address", listener.Addr().String(), "prefill", len(cfg.Prefill), "decode", len(cfg.Decode),
		"connector", cfg.Connector.Name, "store", config.StoreName(cfg.Redis), "version", command.Version)
	return p.Run(ctx, listener)
}

// NewParts makes everything except the server, and returns the server's dependencies.
func NewParts(all Configured, logger *slog.Logger) (*Proxy, server.Deps, error) {
	cfg := all.Config
	secret, err := convcache.RandomSecret()
	if configured := cfg.Conversation.Secret; configured != "" {
		secret, err = convcache.NewSecret([]byte(configured))
	}
	if err != nil {
		return nil, server.Deps{}, err
	}
	config.WarnOfReadable(cfg, logger)
	p := &Proxy{Level: &slog.LevelVar{}, Events: &events.List{}, HashID: func(id string) [8]byte { return secret.ClientID(id) }}
	if p.Sources, err = openSources(cfg, logger); err != nil {
		return nil, server.Deps{}, err
	}
	if p.Tickets, err = openTickets(cfg, secret, logger, p.Events.Teller(events.Store)); err != nil {
		return nil, server.Deps{}, err
	}
	client := upstream.NewClient(upstream.ClientConfig{DialTimeout: config.DialTimeout, Key: string(cfg.Auth.UpstreamKey)})
	connector, err := p.OpenConnector(cfg, client, logger)
	if err != nil {
		return nil, server.Deps{}, err
	}
	ask := cmp.Or(all.AskLimit, usualAskLimit)
	engines := fleet.New(fleet.Config{
		Client: client, Prefill: newPolicy(cfg.Routing.Prefill), Decode: newDecodePolicy(cfg),
		ReadLimit: ask, AskLimit: ask, MaxInFlight: cfg.Limits.MaxPerInstance,
		ProbeIDs: connector.Traits().Reuses, Logger: logger,
		Render: config.RenderServer(cfg.Conversation), Tell: p.Events.Teller(events.Engine),
		TeachShapes: cfg.Conversation.TeachShapes == "on",
	})
	p.Fleet, p.Probe, p.Client = engines, engines.Run, client
	p.kvEvents = newKVEvents(cfg.KVEvents, engines, logger)
	p.Alongside = append(p.Alongside, p.kvEvents.run)
	deps := server.Deps{
		Store: p.Tickets.Store, Fleet: engines, Legs: client, Connector: connector, Secret: secret,
	}
	if shared := p.Tickets.Shared; shared != nil {
		deps.Shared, deps.RedisState = shared, func() string { return shared.State().String() }
	}
	if err := p.measure(all.Telemetry, &deps, logger); err != nil {
		return nil, server.Deps{}, err
	}
	if p.Sources.named != nil {
		deps.Prefillers = p.Sources.named
	}
	return p, deps, nil
}

// Close drops all connections. A second call does nothing.
func (p *Proxy) Close() {
	p.Client.Close()
	if p.Tickets.Redis != nil {
		_ = p.Tickets.Redis.Close() // fails only the second time
	}
	if p.Telemetry.tracing != nil {
		p.Telemetry.tracing.close()
	}
	p.Telemetry.Meters.end()
}

// Run serves on the listener until ctx ends and all background work has stopped.
func (p *Proxy) Run(ctx context.Context, listener net.Listener) error {
	defer p.Close()
	defer listener.Close() // a running server has already closed it
	p.Telemetry.Meters.running.Store(true)
	p.own.add(listener.Addr())
	// Discovery and probes outlive ctx: turns go on while the server drains.
	beside, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, beside := errgroup.WithContext(beside)
	known := make(chan struct{}) // closed at the first list of instances
	group.Go(func() error { return p.watch(beside, known) })
	select {
	case <-known:
	case <-beside.Done(): // there will be no list
		return group.Wait()
	case <-ctx.Done():
		stop()
		return group.Wait()
	}
	group.Go(func() error { return p.Probe(beside) })
	group.Go(func() error {
		_ = p.Tickets.Store.Run(beside) // returns the cause of ctx's end
		return nil
	})
	for _, work := range p.Alongside {
		group.Go(func() error { return work(beside) })
	}
	// Without them the server would use its last knowledge for ever.
	serving, end := context.WithCancel(ctx)
	defer end()
	context.AfterFunc(beside, end)
	group.Go(func() error {
		defer stop()
		return p.Server.Run(serving, listener)
	})
	return group.Wait()
}

// newDecodePolicy keeps a conversation at its home if there are no tickets: the prefix cache there has the most of the next prompt.
func newDecodePolicy(cfg config.Config) upstream.Policy {
	if cfg.Routing.Decode == "auto" && !cfg.Connector.ReusesKV() {
		return &routing.Prefix{}
	}
	return newPolicy(cfg.Routing.Decode)
}

func newPolicy(name string) upstream.Policy {
	switch name {
	case "affinity":
		return &routing.Affinity{Otherwise: &routing.RoundRobin{}}
	case "prefix":
		return &routing.Prefix{}
	case "least_loaded":
		return &routing.LeastLoaded{}
	case "power_of_two":
		return &routing.PowerOfTwo{}
	case "round_robin":
		return &routing.RoundRobin{}
	}
	return &routing.Auto{}
}
