package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"

	"carryover/cmd/carryover/config"
	"carryover/upstream"
	"carryover/upstream/connector/lmcache"
	"carryover/upstream/connector/mooncake"
	"carryover/upstream/connector/nixl"
	"carryover/upstream/connector/orchestrated"
	"carryover/upstream/connector/storage"
	"carryover/upstream/zmq/kvready"
)

// OpenConnector makes the configured connector, and adds its background work.
func (p *Proxy) OpenConnector(cfg config.Config, client *upstream.Client, logger *slog.Logger) (upstream.Connector, error) {
	switch cfg.Connector.Name {
	case config.ConnectorNIXL, config.ConnectorMulti:
		// MultiConnector merges its children's params into one object (multi_connector.py), so NIXL's params are the whole.
		return nixl.Connector{Among: cfg.Connector.Name == config.ConnectorMulti}, nil
	case config.ConnectorLMCache:
		return p.openLMCache(cfg.LMCache, logger)
	case config.ConnectorLMCacheStorage:
		return storage.Connector{}, nil
	case config.ConnectorMooncake:
		return &mooncake.Connector{BootstrapPort: cfg.Mooncake.BootstrapPort, Fetch: client.FetchOpen}, nil
	case config.ConnectorOrchestrated:
		return orchestrated.Connector{Response: cfg.Connector.OrchestratedForm == config.OrchestratedResponse}, nil
	}
	return nil, fmt.Errorf("connector %q: unknown", cfg.Connector.Name)
}

func (p *Proxy) openLMCache(cfg config.LMCacheConfig, logger *slog.Logger) (upstream.Connector, error) {
	named, err := cfg.Receivers()
	if err != nil {
		return nil, err
	}
	heard := kvready.Config{Logger: logger}
	if p.Tickets.Redis != nil {
		heard.Relay = p.Tickets.Redis.Channel // a worker may be connected to another replica than the turn's
	}
	waits := kvready.New(heard)
	if p.Tickets.Redis != nil {
		p.Alongside = append(p.Alongside, toTheEnd(waits.Run), toTheEnd(func(ctx context.Context) error {
			return p.Tickets.Redis.Channel.Subscribe(ctx, waits.Relayed)
		}))
	}
	p.Alongside = append(p.Alongside, toTheEnd(func(ctx context.Context) error {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen)
		if err != nil {
			return fmt.Errorf("listen to LMCache: %w", err)
		}
		logger.Info("waiting for notifications of LMCache", "lmcache_address", listener.Addr().String())
		return waits.Serve(ctx, listener)
	}))
	return &lmcache.Connector{
		Expect: waits.Expect, NewID: rand.Text, Receivers: named, Notifications: cfg.Notifications,
		MaxPromptTokens: cfg.MaxPromptTokens, ChunkTokens: cfg.ChunkTokens,
	}, nil
}

// toTheEnd returns no error if the program's end has ended the work.
func toTheEnd(work func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := work(ctx)
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
}
