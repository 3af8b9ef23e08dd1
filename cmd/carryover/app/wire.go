// Package app is the composition root: it picks implementations, puts the program together and runs it.
//
// wire.go puts the parts together: discovery.go makes the sources of instances, store.go the ticket store and server.go the server.
// Operators have a listener of their own (admin.go).
//
// OpenTelemetry's standard variables are read by its SDK, but for those that switch exports on (telemetry.go). meters.go and
// telemetry.go make the exporters of metrics and spans; package telemetry defines both.
//
// # Reload
//
// The rows with Live in the table of settings can change while turns run: lists of instances, policies and thresholds, limits, the log's
// level. SIGHUP and POST /admin/reload read flags, environment and file anew. A fault, or a change of any other setting, changes nothing and
// is named (reload.go). A turn keeps the routing that it began with.
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
	Journal   *journal.Journal // of the last turns
	Events    *events.List     // the last, for operators
	HashID    func(id string) [8]byte
	Telemetry exporters
	Fleet     *fleet.Fleet
	kvEvents  *kvEvents                   // what instances publish of their KV caches
	Probe     func(context.Context) error // keeps the fleet up to date
	Sources   sources
	own       ownAddresses   // where it listens
	Level     *slog.LevelVar // of the log
	Alongside []func(context.Context) error
	Client    *upstream.Client
	Tickets   tickets
}

// NewProxy puts the program together from a configuration. Observers hear of each finished turn.
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
	settings.Tell = server.Tellers{
		Quarantine: p.Events.Teller(events.Quarantine), Stop: p.Events.Teller(events.Stop), Drain: p.Events.Teller(events.Drain),
	}
	p.Server = server.New(settings, deps)
	return p, nil
}

// exporters are where metrics and spans go.
type exporters struct {
	Meters  *meters
	tracing *tracing // nil if no traces are exported
}

func (e exporters) close() {
	if e.tracing != nil {
		e.tracing.close()
	}
	e.Meters.end()
}

// trace traces turns if traces are exported.
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

// Serve checks the store and runs on the configured address until ctx ends.
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

// NewParts makes everything except the server, and the dependencies of the server.
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
		Store: p.Tickets.Store, RedisState: p.Tickets.redisState(), Fleet: engines, Legs: client, Connector: connector, Secret: secret,
	}
	if err := p.measure(all.Telemetry, &deps, logger); err != nil {
		return nil, server.Deps{}, err
	}
	if p.Tickets.Shared != nil {
		deps.Shared = p.Tickets.Shared
	}
	if p.Sources.named != nil {
		deps.Prefillers = p.Sources.named
	}
	return p, deps, nil
}

// Close drops all connections. A second time it does nothing.
func (p *Proxy) Close() {
	p.Client.Close()
	p.Tickets.close()
	p.Telemetry.close()
}

// Run serves on the listener until ctx ends and everything that was started has
// stopped.
func (p *Proxy) Run(ctx context.Context, listener net.Listener) error {
	defer p.Close()
	defer listener.Close() // the server has done so already, if it came to run
	p.Telemetry.Meters.running.Store(true)
	p.own.add(listener.Addr())
	// Discovery and probing outlive ctx: turns go on while the server drains.
	beside, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, beside := errgroup.WithContext(beside)
	known := make(chan struct{}) // closed when the first list of instances is set
	group.Go(func() error { return p.watch(beside, known) })
	select {
	case <-known:
	case <-beside.Done(): // there will be none
		return group.Wait()
	case <-ctx.Done():
		stop()
		return group.Wait()
	}
	group.Go(func() error { return p.Probe(beside) })
	group.Go(func() error {
		_ = p.Tickets.Store.Run(beside) // returns the cause of the end, which is ours
		return nil
	})
	for _, work := range p.Alongside {
		group.Go(func() error { return work(beside) })
	}
	// Without these the server would use its last knowledge for ever.
	serving, end := context.WithCancel(ctx)
	defer end()
	context.AfterFunc(beside, end)
	group.Go(func() error {
		defer stop()
		return p.Server.Run(serving, listener)
	})
	return group.Wait()
}

// newDecodePolicy keeps a conversation at its home if no ticket says which decode instance holds it: the prefix cache of that instance has
// the most of the next prompt.
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
