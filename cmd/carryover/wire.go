package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"

	"carryover/convcache"
	"carryover/convcache/redisstore"
	"carryover/server"
	"carryover/server/journal"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/discovery"
	"carryover/upstream/fleet"
	"carryover/upstream/routing"
)

// serve runs the proxy on the configured address until ctx ends.
func serve(ctx context.Context, cfg configured, stderr io.Writer) error {
	logger, level := newLogger(cfg.Log, stderr)
	p, err := newProxy(cfg, logger)
	if err != nil {
		return err
	}
	p.level = level
	return p.serve(ctx, cfg, logger)
}

// proxy is a wired server with everything that runs beside it.
type proxy struct {
	server    *server.Server
	journal   *journal.Journal // of the last turns, for operators
	tracing   *tracing         // nil if no traces are exported
	meters    *meters
	fleet     *fleet.Fleet
	events    *events                     // what instances publish of their KV caches
	probe     func(context.Context) error // keeps the fleet up to date
	source    upstream.Source
	inherited inherited           // by instances of the source
	listed    *discovery.Listed   // those of the configuration, which a reload replaces
	announced *discovery.ZMQ      // those that announce themselves over ZeroMQ, nil if none may
	registry  *discovery.Registry // those that are added at run time, nil if none may be
	named     *discovery.Named    // prefill instances that requests name, nil where they name none
	own       ownAddresses        // where it listens
	level     *slog.LevelVar      // of the log
	alongside []func(context.Context) error
	client    *upstream.Client
	store     ticketStore
	shared    *convcache.Shared // the store, if replicas share it; else nil
	redis     *redisstore.Store // what is shared then; else nil
}

func newProxy(cfg configured, logger *slog.Logger, observers ...record.Observer) (*proxy, error) {
	p, deps, err := newParts(cfg, logger)
	if err != nil {
		return nil, err
	}
	p.journal = journal.New(journal.Config{})
	deps.Observers = slices.Concat(deps.Observers, []record.Observer{p.journal.Observe}, observers)
	if err := p.trace(cfg.telemetry, &deps, logger); err != nil {
		p.close()
		return nil, err
	}
	p.server = server.New(newServerConfig(cfg.Config, logger), deps)
	return p, nil
}

// trace traces turns if traces are exported.
func (p *proxy) trace(cfg telemetryConfig, deps *server.Deps, logger *slog.Logger) (err error) {
	if cfg.traces == nil {
		return nil
	}
	if p.tracing, err = openTracing(cfg, logger); err != nil {
		return err
	}
	deps.Sample, deps.Observers = p.tracing.sample, append(deps.Observers, p.tracing.observer)
	return nil
}

// serve checks the store and runs on the configured address until ctx ends.
func (p *proxy) serve(ctx context.Context, cfg configured, logger *slog.Logger) error {
	defer p.close()
	if err := p.checkStore(ctx, logger); err != nil {
		return err
	}
	address := net.JoinHostPort(cfg.Listen.Host, strconv.Itoa(cfg.Listen.Port))
	listener, err := listenAt(ctx, address, "a port with --port")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	reload := &reloader{again: cfg.again, proxy: p, logger: logger, cfg: cfg.Config}
	operators, err := openAdmin(ctx, cfg.Admin)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	p.alongside = append(p.alongside, reload.onHangup())
	if operators != nil {
		logger.Info("serving operators", "admin_address", operators.Addr().String(), "page", pageAt(operators))
		p.alongside = append(p.alongside, func(ctx context.Context) error {
			return p.serveAdmin(ctx, operators, cfg.Admin.Token, reload.reload, logger)
		})
	}
	logger.Info("serving", "address", listener.Addr().String(), "prefill", len(cfg.Prefill), "decode", len(cfg.Decode),
		"connector", cfg.Connector.Name, "proof", cfg.Proof.Mode, "store", storeName(cfg.Redis), "version", version)
	if cfg.Proof.Mode == string(server.ProofHistory) {
		logger.Warn("history proof is the weaker one: equal text is not always equal tokens, and a ticket used for other tokens gives wrong answers")
	}
	return p.run(ctx, listener)
}

// newParts makes everything except the server, and the dependencies of the server.
func newParts(all configured, logger *slog.Logger) (*proxy, server.Deps, error) {
	cfg := all.Config
	secret, err := newSecret(cfg.Conversation.Secret)
	if err != nil {
		return nil, server.Deps{}, err
	}
	warnOfReadable(cfg, logger)
	p := &proxy{inherited: newInherited(cfg), level: &slog.LevelVar{}}
	if err := p.openSources(cfg, logger); err != nil {
		return nil, server.Deps{}, err
	}
	if err := p.openStore(cfg, secret, logger); err != nil {
		return nil, server.Deps{}, err
	}
	client := upstream.NewClient(upstream.ClientConfig{
		DialTimeout: cfg.Timeouts.Dial, Key: string(cfg.Auth.UpstreamKey), Std: cfg.Upstream.Client == clientStd,
	})
	connector, err := p.openConnector(cfg, logger)
	if err != nil {
		return nil, server.Deps{}, err
	}
	engines := fleet.New(fleet.Config{
		Client: client, Prefill: newPolicy(cfg.Routing.Prefill), Decode: newDecodePolicy(cfg),
		ReadLimit: cfg.Timeouts.Tokenize, AskLimit: cfg.Timeouts.Tokenize, MaxInFlight: cfg.Limits.MaxPerInstance,
		ProbeIDs: provesTokens(cfg.Proof) && connector.Traits().Reuses, Introduce: connector.Traits().Introduce, Logger: logger,
		Render: renderServer(cfg.Proof),
	})
	p.fleet, p.probe, p.client = engines, engines.Run, client
	p.events = newEvents(cfg.KVEvents, engines, logger)
	p.alongside = append(p.alongside, p.events.run)
	deps := server.Deps{
		Store: p.store, RedisState: p.redisState(), Fleet: engines, Legs: client, Connector: connector, Secret: secret,
		Tokens: proof.NewTokens(secret.ChainKey(), logger), History: proof.History{Key: secret.HistoryKey()},
	}
	if err := p.measure(all.telemetry, &deps, logger); err != nil {
		return nil, server.Deps{}, err
	}
	if p.shared != nil {
		deps.SharedQuarantines, deps.SharedLineages = p.shared, p.shared
	}
	if p.named != nil {
		deps.Prefillers = p.named
	}
	return p, deps, nil
}

// close drops all connections. A second time it does nothing.
func (p *proxy) close() {
	p.client.Close()
	p.closeStore()
	if p.tracing != nil {
		p.tracing.close()
	}
	p.meters.end()
}

// run serves on the listener until ctx ends and everything that was started has
// stopped.
func (p *proxy) run(ctx context.Context, listener net.Listener) error {
	defer p.close()
	defer listener.Close() // the server has done so already, if it came to run
	p.meters.running.Store(true)
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
	group.Go(func() error { return p.probe(beside) })
	group.Go(func() error {
		_ = p.store.Run(beside) // returns the cause of the end, which is ours
		return nil
	})
	for _, work := range p.alongside {
		group.Go(func() error { return work(beside) })
	}
	// Without these the server would use its last knowledge for ever.
	serving, end := context.WithCancel(ctx)
	defer end()
	context.AfterFunc(beside, end)
	group.Go(func() error {
		defer stop()
		return p.server.Run(serving, listener)
	})
	return group.Wait()
}

func newSecret(configured Secret) (convcache.Secret, error) {
	if configured == "" {
		return convcache.RandomSecret()
	}
	return convcache.NewSecret([]byte(configured))
}

// newDecodePolicy keeps a conversation at its home if no ticket says which decode instance holds it: the prefix cache of that instance has
// the most of the next prompt.
func newDecodePolicy(cfg Config) upstream.Policy {
	if cfg.Routing.Decode == "auto" && !cfg.Connector.reusesKV() {
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
