package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"carryover/convcache"
	"carryover/convcache/redisstore"
	"carryover/server"
)

// ticketStore is a store with work of its own to do beside the turns.
type ticketStore interface {
	server.Store
	// Run returns the cause of the end of ctx.
	Run(ctx context.Context) error
}

// openStore makes the store, which connects to nothing yet.
func (p *proxy) openStore(cfg Config, secret convcache.Secret, logger *slog.Logger) error {
	if cfg.Redis.URL == "" {
		p.store = convcache.NewMemory(memoryBounds(cfg.Store))
		return nil
	}
	conn, err := redisConnection(cfg, secret, logger)
	if err != nil {
		return err
	}
	if conn.Unfenced {
		logger.Warn("redis.fencing is off: should Redis ever fail over or restart from a file, a ticket may be used twice, which gives wrong answers")
	}
	if exposed(conn) {
		logger.Warn("redis.insecure: others on the network may be able to read tickets, or to write them")
	}
	redis, err := redisstore.New(conn)
	if err != nil {
		return err
	}
	p.redis = redis
	p.shared = convcache.NewShared(redis, convcache.SharedConfig{Local: memoryBounds(cfg.Store), Logger: logger})
	p.store = p.shared
	return nil
}

// redisConnection is all that Redis' store is told. loadConfig has found no fault, but a file may have changed since.
func redisConnection(cfg Config, secret convcache.Secret, logger *slog.Logger) (redisstore.Config, error) {
	var faults []error
	conn := cfg.Redis.connection(func(key, _, want string) {
		faults = append(faults, fmt.Errorf("%s: want %s", key, want))
	})
	conn.Secret, conn.Timeout, conn.Logger = secret, cfg.Timeouts.Store, logger
	conn.Messages = cfg.Connector.Name == connectorLMCache
	return conn, errors.Join(faults...)
}

// memoryBounds hold for the tickets of this process, with Redis too: there they are kept while it does not answer.
func memoryBounds(cfg StoreConfig) convcache.MemoryConfig {
	return convcache.MemoryConfig{MaxEntries: cfg.MaxTickets, MaxBytes: int64(cfg.MaxBytes)}
}

func (p *proxy) closeStore() {
	if p.redis != nil {
		_ = p.redis.Close() // a second Close is its only error
	}
}

// redisState is what /readyz shows of Redis, nil where there is none.
func (p *proxy) redisState() func() string {
	if p.shared == nil {
		return nil
	}
	return func() string { return p.shared.State().String() }
}

// storeCheckTimeout is how long a Redis that does not answer may hold up the start.
const storeCheckTimeout = 2 * time.Second

// late reports whether an error is a time limit's.
func late(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// checkStore finds out whether Redis can share tickets. If Redis refuses, it would refuse always, and every replica would keep its tickets
// to itself unnoticed. If it does not answer, it may do so later.
func (p *proxy) checkStore(ctx context.Context, logger *slog.Logger) error {
	if p.shared == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeCheckTimeout)
	defer cancel()
	err := p.shared.Check(ctx)
	for late(err) && ctx.Err() == nil { // the limit of one operation is milliseconds, and this process has only just begun
		err = p.shared.Check(ctx)
	}
	if errors.Is(err, convcache.ErrRemoteForbids) {
		return err
	}
	if err != nil {
		logger.Warn("starting without Redis: tickets are kept in this replica until it answers", "error", err)
	}
	return nil
}
