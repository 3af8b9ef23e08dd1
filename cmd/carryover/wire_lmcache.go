package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"

	"carryover/server"
	"carryover/upstream/connector/lmcache"
	"carryover/upstream/zmq/kvready"
)

// openLMCache makes the connector of LMCache's P/D mode, and has the notifications of prefill instances read beside the server.
func (p *proxy) openLMCache(cfg LMCacheConfig, logger *slog.Logger) (server.Connector, error) {
	named, err := cfg.receivers()
	if err != nil {
		return nil, err
	}
	heard := kvready.Config{Logger: logger}
	if p.redis != nil {
		heard.Relay = p.redis // a worker may be connected to another replica than that of the turn
	}
	waits := kvready.New(heard)
	if p.redis != nil {
		p.alongside = append(p.alongside, toTheEnd(waits.Run), toTheEnd(func(ctx context.Context) error {
			return p.redis.Subscribe(ctx, waits.Relayed)
		}))
	}
	p.alongside = append(p.alongside, toTheEnd(func(ctx context.Context) error {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen)
		if err != nil {
			return fmt.Errorf("listen to LMCache: %w", err)
		}
		logger.Info("waiting for notifications of LMCache", "lmcache_address", listener.Addr().String())
		return waits.Serve(ctx, listener)
	}))
	c := &lmcache.Connector{
		Expect: waits.Expect, NewID: rand.Text, Receivers: named, Notifications: cfg.Notifications,
		DecodeUnready: cfg.Unready == unreadyDecode, MaxPromptTokens: cfg.MaxPromptTokens, ChunkTokens: cfg.ChunkTokens,
		ChatAtDecode: cfg.Chat == lmcacheChat,
	}
	if r, ok := cfg.otherwise(); ok {
		c.Otherwise = r
	}
	return c, nil
}

// toTheEnd is work that ends with the program, which is no failure.
func toTheEnd(work func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := work(ctx)
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
}
