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
)

type ticketStore interface {
	convcache.Store
	// Run returns the cause of the end of ctx.
	Run(ctx context.Context) error
}

type tickets struct {
	Store  ticketStore
	Shared *convcache.Shared // Store, if replicas share it; else nil
	Redis  *redisstore.Store // the store below Shared; nil without it
}

// openTickets makes the store without connecting. tell gets a sentence for each outage.
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

// redisConnection can fail although Load found no fault: a file may have changed since.
func redisConnection(cfg config.Config, secret convcache.Secret, logger *slog.Logger) (redisstore.Config, error) {
	var faults []error
	conn := cfg.Redis.Connection(func(key, _, want string) {
		faults = append(faults, fmt.Errorf("%s: want %s", key, want))
	})
	conn.Secret, conn.Timeout, conn.Logger = secret, cfg.Timeouts.Store, logger
	conn.Messages = cfg.Connector.Name == config.ConnectorLMCache
	return conn, errors.Join(faults...)
}

const maxTickets = 100_000

// memoryBounds also hold with Redis: tickets stay in this process while Redis does not answer.
func memoryBounds(cfg config.StoreConfig) convcache.MemoryConfig {
	return convcache.MemoryConfig{MaxEntries: maxTickets, MaxBytes: int64(cfg.MaxBytes)}
}

// StoreCheckTimeout is how long a Redis without an answer may delay the start.
const StoreCheckTimeout = 2 * time.Second

func late(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// check asks whether Redis can share tickets. A refusal is final: every replica would keep its tickets to itself unnoticed. A Redis that
// does not answer may do so later.
func (t tickets) check(ctx context.Context, logger *slog.Logger) error {
	if t.Shared == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, StoreCheckTimeout)
	defer cancel()
	err := t.Shared.Check(ctx)
	for late(err) && ctx.Err() == nil { // one operation has milliseconds, and this process has just begun
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
