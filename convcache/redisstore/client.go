package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// The limits of a client. go-redis 9.23 by default waits 5 s for an answer even under a context of 5 ms,
// tries three times more, and dials five times.
const (
	readTimeout = 20 * time.Millisecond // for the test of the server; turns have Timeout
	dialTimeout = 250 * time.Millisecond
	idleTime    = 4 * time.Minute // below what load balancers and servers usually grant
	pool        = 64
	maxConns    = 128
	minIdle     = 4
)

// clientOptions are the options of every client. Nothing that may have been sent is sent again: a put that
// is repeated after its ticket was taken makes that ticket usable twice.
func clientOptions(cfg Config) *redis.UniversalOptions {
	wait := max(readTimeout, cfg.Timeout)
	return &redis.UniversalOptions{
		Addrs: cfg.Addresses, MasterName: cfg.Master, IsClusterMode: cfg.Topology == Cluster, DB: cfg.DB,
		Username: cfg.Username, Password: cfg.Password,
		SentinelPassword: cfg.SentinelPassword,
		TLSConfig:        cfg.TLS,

		MaxRetries: -1, MaxRedirects: -1, DialerRetries: 1,
		ContextTimeoutEnabled: true,
		ReadTimeout:           wait, WriteTimeout: wait, DialTimeout: dialTimeout, PoolTimeout: cfg.Timeout,
		PoolSize: pool, MaxActiveConns: maxConns, MinIdleConns: minIdle, PipelinePoolSize: -1,
		ConnMaxIdleTime: idleTime,

		// An ACL need not allow CLIENT, and Valkey has no maintenance notifications.
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// silentLogger drops what go-redis logs: addresses, and once per failed dial. What matters is in the
// outcomes and in the log lines of lines.go and of convcache.Shared.
type silentLogger struct{}

// Printf does nothing.
func (silentLogger) Printf(context.Context, string, ...any) {}
