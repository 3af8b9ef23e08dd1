package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sync/errgroup"

	"carryover/convcache"
	"carryover/convcache/redisstore"
	"carryover/server"
	"carryover/server/proof"
	"carryover/upstream"
	"carryover/upstream/connector/nixl"
	"carryover/upstream/discovery"
	"carryover/upstream/fleet"
	"carryover/upstream/routing"
)

// serve runs the proxy on the configured address until ctx ends.
func serve(ctx context.Context, cfg configured, stderr io.Writer) error {
	logger, level := newLogger(cfg.Log, stderr)
	p, err := newProxy(cfg.Config, logger)
	if err != nil {
		return err
	}
	p.level = level
	return p.serve(ctx, cfg, logger)
}

// proxy is a wired server with everything that runs beside it.
type proxy struct {
	server    *server.Server
	fleet     *fleet.Fleet
	probe     func(context.Context) error // keeps the fleet up to date
	source    upstream.Source
	inherited inherited           // by instances of the source
	listed    *discovery.Listed   // those of the configuration, which a reload replaces
	registry  *discovery.Registry // those that are added at run time, nil if none may be
	named     *discovery.Named    // prefill instances that requests name, nil where they name none
	level     *slog.LevelVar      // of the log
	alongside []func(context.Context) error
	client    *upstream.Client
	store     ticketStore
	shared    *convcache.Shared // the store, if replicas share it; else nil
	redis     *redisstore.Store // what is shared then; else nil
}

func newProxy(cfg Config, logger *slog.Logger, observers ...server.Observer) (*proxy, error) {
	p, deps, err := newParts(cfg, logger)
	if err != nil {
		return nil, err
	}
	deps.Observers = observers
	p.server = server.New(newServerConfig(cfg, logger), deps)
	return p, nil
}

// serve checks the store and runs on the configured address until ctx ends.
func (p *proxy) serve(ctx context.Context, cfg configured, logger *slog.Logger) error {
	defer p.close()
	if err := p.checkStore(ctx, logger); err != nil {
		return err
	}
	address := net.JoinHostPort(cfg.Listen.Host, strconv.Itoa(cfg.Listen.Port))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
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
		logger.Info("serving operators", "admin_address", operators.Addr().String())
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

// newParts makes everything but the server, and what the server is to work with.
func newParts(cfg Config, logger *slog.Logger) (*proxy, server.Deps, error) {
	secret, err := newSecret(cfg.Conversation.Secret)
	if err != nil {
		return nil, server.Deps{}, err
	}
	warnOfReadable(cfg, logger)
	p := &proxy{inherited: inherited{kvHost: cfg.KV.Host, kvTTL: cfg.Store.DecoderKVTTL}, level: &slog.LevelVar{}}
	if err := p.openSources(cfg, logger); err != nil {
		return nil, server.Deps{}, err
	}
	if err := p.openStore(cfg, secret, logger); err != nil {
		return nil, server.Deps{}, err
	}
	client := upstream.NewClient(upstream.ClientConfig{DialTimeout: cfg.Timeouts.Dial, Key: string(cfg.Auth.UpstreamKey)})
	connector := nixl.Connector{}
	engines := fleet.New(fleet.Config{
		Client: client, Prefill: newPolicy(cfg.Routing.Prefill), Decode: newPolicy(cfg.Routing.Decode),
		Logger: logger, ReadLimit: cfg.Timeouts.Tokenize, AskLimit: cfg.Timeouts.Tokenize, ProbeIDs: provesTokens(cfg.Proof) && connector.Traits().Reuses, Introduce: connector.Traits().Introduce,
		MaxInFlight: cfg.Limits.MaxPerInstance,
	})
	p.fleet, p.probe, p.client = engines, engines.Run, client
	deps := server.Deps{
		Store: p.store, RedisState: p.redisState(), Fleet: engines, Legs: client, Connector: connector, Secret: secret,
		Tokens: proof.NewTokens(secret.ChainKey(), logger), History: proof.History{},
	}
	if p.shared != nil {
		deps.SharedBars = p.shared
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
}

// run serves on the listener until ctx ends and everything that was started has
// stopped.
func (p *proxy) run(ctx context.Context, listener net.Listener) error {
	defer p.close()
	defer listener.Close() // the server has done so already, if it came to run
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
	// Without what runs beside it the server would believe what it knew last for ever.
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

func newInstances(cfg Config) ([]upstream.Instance, error) {
	var all []upstream.Instance
	for role, configured := range map[upstream.Role][]InstanceConfig{upstream.RolePrefill: cfg.Prefill, upstream.RoleDecode: cfg.Decode} {
		for _, c := range configured {
			instance, err := upstream.NewInstance(role, c.Name, c.URL)
			if err != nil {
				return nil, err
			}
			instance.KVHost, instance.KVTTL, instance.Weight = c.KVHost, c.KVTTL, c.Weight
			all = append(all, discovery.Ranks(instance, c.Ranks)...)
		}
	}
	return all, nil
}

// provesTokens reports whether the token proof is used for any model. Engines that
// only ever see the history proof are not probed for what they need not have.
func provesTokens(p ProofConfig) bool {
	modes := append(slices.Collect(maps.Values(p.Models)), p.Mode)
	return slices.Contains(modes, string(server.ProofAuto))
}

func newServerConfig(cfg Config, logger *slog.Logger) server.Config {
	models := map[string]server.ProofMode{}
	for model, mode := range cfg.Proof.Models {
		models[model] = server.ProofMode(mode)
	}
	files := openFiles()
	streams := cfg.Limits.MaxStreams
	if streams == 0 {
		streams = max(16, (files-reservedFiles)/filesPerTurn)
	}
	return server.Config{
		Proof: server.ProofMode(cfg.Proof.Mode), ModelProofs: models, RoutingConfig: newRouting(cfg),
		ReuseConfig: server.ReuseConfig{
			ReuseMinTokens: cfg.Proof.ReuseMinTokens, ReuseMinShare: cfg.Proof.ReuseMinShare, ReuseHybrid: cfg.Proof.ReuseHybrid,
			ReuseTrialTimeout: cfg.Proof.ReuseTrialTimeout, TTL: cfg.Store.TTL,
		},
		ReleaseConfig: server.ReleaseConfig{
			Release: cfg.Release.Mode == "on", ReleaseBacklog: cfg.Release.Backlog, BranchKeep: cfg.Release.BranchKeep, PinnedShare: cfg.Release.PinnedShare,
		},
		IdentityConfig: server.IdentityConfig{
			Sources: cfg.Conversation.Sources, TenantHeader: cfg.Conversation.TenantHeader, TenantSalt: cfg.Conversation.TenantSalt,
		},
		PassingConfig: server.PassingConfig{
			BufferStreams: cfg.KV.DecodeStream == decodeBuffered, StripClientParams: cfg.KV.ClientParams == "strip",
			ExposeParams: cfg.KV.ExposeParams, ForwardAuthorization: cfg.Auth.ForwardAuthorization,
		},
		LimitConfig: server.LimitConfig{
			MaxBodyBytes: int64(cfg.Limits.MaxBodyBytes), MaxInflightBytes: int64(cfg.Limits.MaxInflightBytes),
			MaxStreams: streams, MaxConnections: max(16, (files-reservedFiles)/2), MaxHeaderBytes: int(cfg.Limits.MaxHeaderBytes), QueueConfig: newQueue(cfg),
		},
		TimeConfig: server.TimeConfig{
			PrefillTimeout: cfg.Timeouts.Prefill, HandoverBudget: cfg.Timeouts.HandoverBudget,
			FirstByteTimeout: cfg.Timeouts.FirstByte, IdleTimeout: cfg.Timeouts.Idle,
			StoreTimeout: cfg.Timeouts.Store, ShutdownGrace: cfg.Timeouts.ShutdownGrace,
			ClientWriteTimeout: cfg.Timeouts.ClientWrite, ClientHeaderTimeout: cfg.Timeouts.ClientHeader, ClientBodyTimeout: cfg.Timeouts.ClientBody,
		},
		RedisRequired: cfg.Redis.Required, Version: version, Logger: logger,
	}
}

// A turn holds one client connection and one upstream connection at a time; a
// third of a file is left for connections that wait in the pools. Some files are
// reserved for listeners, logs and probes.
const (
	reservedFiles = 256
	filesPerTurn  = 3
)

// openFiles is the limit of open files; the Go runtime has raised it to the hard
// limit at start.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return int(min(limit.Cur, 1<<20))
}

// newLogger returns the log, and the level that can be changed.
func newLogger(cfg LogConfig, w io.Writer) (*slog.Logger, *slog.LevelVar) {
	level := &slog.LevelVar{}
	level.Set(logLevel(cfg))
	options := &slog.HandlerOptions{Level: level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options)), level
	}
	return slog.New(slog.NewTextHandler(w, options)), level
}

func logLevel(cfg LogConfig) (level slog.Level) {
	_ = level.UnmarshalText([]byte(cfg.Level)) // checked by loadConfig
	return level
}
