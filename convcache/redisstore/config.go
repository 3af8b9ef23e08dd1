package redisstore

import (
	"context"
	"crypto/tls"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"carryover/convcache"
)

// Topology says how to find Redis servers.
type Topology int

// The topologies.
const (
	// Single is one server, or several behind a proxy.
	Single Topology = iota
	// Sentinel is one master with replicas; Sentinels name the master.
	Sentinel
	// Cluster is Redis Cluster: each conversation is on the master of its slot.
	Cluster
)

// String returns the topology in lower case, as in configuration and logs.
func (t Topology) String() string {
	switch t {
	case Single:
		return "single"
	case Sentinel:
		return "sentinel"
	case Cluster:
		return "cluster"
	}
	return "unknown"
}

const (
	defaultPrefix   = "carryover"
	defaultTimeout  = 5 * time.Millisecond
	defaultMaxValue = 256 << 10
)

// Config says which Redis or Valkey servers share the tickets. They need version 6.2 or newer.
type Config struct {
	Topology Topology
	// Addresses are host:port of the server, the Sentinels, or some nodes of the Cluster. For Single, a path that begins with "/" is a
	// unix socket.
	Addresses []string
	// Master is the name of the master among the Sentinels.
	Master string
	// Username and Password are the servers' ACL user, empty for none.
	Username, Password string
	SentinelPassword   string
	// DB is the number of the database. A Cluster has only 0.
	DB int
	// TLS is used for every connection; nil for none.
	TLS *tls.Config
	// Prefix begins every key. Empty means "carryover".
	Prefix string
	// Secret keys all shared values. All replicas need the same.
	Secret convcache.Secret
	// Messages makes Test check the permissions of Channel.
	Messages bool
	// Timeout bounds one operation. 0 means 5 ms.
	Timeout time.Duration
	// MaxValue is the largest ticket in bytes. 0 or less means 256 KiB, some 270,000 tokens in blocks of 16. A put of 256 KiB takes a
	// quarter of 5 ms, one of 1 MiB all of it, and the server does nothing else meanwhile.
	MaxValue int
	// Now is the clock; its wall reading ends values in Redis. nil means time.Now.
	Now func() time.Time
	// Logger gets a line about tickets that are too large, forged or fenced, and about clocks that differ. nil discards.
	Logger *slog.Logger
}

// The limits of a client. By default go-redis 9.23 waits 5 s for an answer even with a context of 5 ms, tries three times more, and dials
// five times.
const (
	readTimeout = 20 * time.Millisecond // for Test; turns have Timeout
	dialTimeout = 250 * time.Millisecond
	idleTime    = 4 * time.Minute // less than load balancers and servers usually grant
	pool        = 64
	maxConns    = 128
	minIdle     = 4
)

// clientOptions turns all retries off: a put that is repeated after its ticket was taken makes that ticket usable twice.
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

		// An ACL may forbid CLIENT, and Valkey has no maintenance notifications.
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// silentLogger drops the log of go-redis, which repeats addresses at each failed dial. error.go and convcache.Shared log what matters.
type silentLogger struct{}

func (silentLogger) Printf(context.Context, string, ...any) {}
