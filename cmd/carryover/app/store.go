package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"carryover/cmd/carryover/config"
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

// tickets are where tickets are stored.
type tickets struct {
	Store  ticketStore
	Shared *convcache.Shared // the store, if replicas share it; else nil
	Redis  *redisstore.Store // what is shared then; else nil
}

// openTickets makes the store, which connects to nothing yet. tell is told of its outages.
func openTickets(cfg config.Config, secret convcache.Secret, logger *slog.Logger, tell func(sentence string)) (tickets, error) {
	if cfg.Redis.URL == "" {
		return tickets{Store: convcache.NewMemory(memoryBounds(cfg.Store))}, nil
	}
	conn, err := redisConnection(cfg, secret, logger)
	if err != nil {
		return tickets{}, err
	}
	if config.Exposed(conn) {
		logger.Warn("redis.insecure: others on the network may be able to read tickets, or to write them")
	}
	redis, err := redisstore.New(conn)
	if err != nil {
		return tickets{}, err
	}
	shared := convcache.NewShared(redis, convcache.SharedConfig{Local: memoryBounds(cfg.Store), Logger: logger, Tell: tell})
	return tickets{Store: shared, Shared: shared, Redis: redis}, nil
}

// redisConnection is all that Redis' store is told. Load has found no fault, but a file may have changed since.
func redisConnection(cfg config.Config, secret convcache.Secret, logger *slog.Logger) (redisstore.Config, error) {
	var faults []error
	conn := cfg.Redis.Connection(func(key, _, want string) {
		faults = append(faults, fmt.Errorf("%s: want %s", key, want))
	})
	conn.Secret, conn.Timeout, conn.Logger = secret, cfg.Timeouts.Store, logger
	conn.Messages = cfg.Connector.Name == config.ConnectorLMCache
	return conn, errors.Join(faults...)
}

// maxTickets bounds the index of the store, beside the bytes of its tickets.
const maxTickets = 100_000

// memoryBounds hold for the tickets of this process, with Redis too: there they are kept while it does not answer.
func memoryBounds(cfg config.StoreConfig) convcache.MemoryConfig {
	return convcache.MemoryConfig{MaxEntries: maxTickets, MaxBytes: int64(cfg.MaxBytes)}
}

func (t tickets) close() {
	if t.Redis != nil {
		_ = t.Redis.Close() // a second Close is its only error
	}
}

// redisState is what /readyz shows of Redis, nil where there is none.
func (t tickets) redisState() func() string {
	if t.Shared == nil {
		return nil
	}
	return func() string { return t.Shared.State().String() }
}

// StoreCheckTimeout is how long a Redis that does not answer may hold up the start.
const StoreCheckTimeout = 2 * time.Second

// late reports whether an error is a time limit's.
func late(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// check finds out whether Redis can share tickets. If Redis refuses, it would refuse always, and every replica would keep its tickets
// to itself unnoticed. If it does not answer, it may do so later.
func (t tickets) check(ctx context.Context, logger *slog.Logger) error {
	if t.Shared == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, StoreCheckTimeout)
	defer cancel()
	err := t.Shared.Check(ctx)
	for late(err) && ctx.Err() == nil { // the limit of one operation is milliseconds, and this process has only just begun
		err = t.Shared.Check(ctx)
	}
	if errors.Is(err, convcache.ErrRemoteForbids) {
		return err
	}
	if err != nil {
		logger.Warn("starting without Redis: tickets are kept in this replica until it answers", "error", err)
	}
	return nil
}
