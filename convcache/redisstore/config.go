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

// Topology says how Redis servers are found.
type Topology int

// The topologies.
const (
	// Single is one server, or several of which a proxy in front of them chooses.
	Single Topology = iota
	// Sentinel is one master with replicas, watched by Sentinels that name the master.
	Sentinel
	// Cluster is Redis Cluster: each conversation lives on the master of its slot.
	Cluster
)

// String returns the topology in lower case, as configuration and logs spell it.
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

// The bounds of a Store whose config leaves them out.
const (
	defaultPrefix   = "carryover"
	defaultTimeout  = 5 * time.Millisecond
	defaultMaxValue = 256 << 10
)

// Config says which Redis or Valkey servers share the tickets, and how. Servers need version 6.2 or
// newer.
type Config struct {
	Topology Topology
	// Addresses are host:port of the server, of the Sentinels, or of some nodes of the Cluster. For
	// Single, a path that begins with "/" is a unix socket.
	Addresses []string
	// Master is the name under which Sentinels know the master.
	Master string
	// Username and Password are those of the servers' ACL, both empty for none.
	Username, Password string
	// SentinelPassword is that of the Sentinels.
	SentinelPassword string
	// DB is the number of the database. A Cluster has only 0.
	DB int
	// TLS is used for every connection; nil is none.
	TLS *tls.Config
	// Prefix begins every key. Empty means "carryover".
	Prefix string
	// Secret keys what replicas share. All replicas need the same.
	Secret convcache.Secret
	// Messages says that replicas publish to each other (Channel), so that Test finds out whether they may.
	Messages bool
	// Timeout is how long one operation may take. 0 means 5 ms.
	Timeout time.Duration
	// MaxValue is how many bytes of one ticket are sent at most; larger ones are refused. 0 or
	// less means 256 KiB, some 270,000 tokens in blocks of 16. Putting 256 KiB takes
	// a quarter of 5 ms and 1 MiB all of it (BenchmarkRedis_Sizes), and whatever else the server has to do waits
	// meanwhile.
	MaxValue int
	// Now is the clock. What is in Redis ends by its wall reading. nil means time.Now.
	Now func() time.Time
	// Logger is told of tickets that are too large, forged or of another master, and of clocks that differ. nil
	// discards.
	Logger *slog.Logger
}

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
// outcomes and in the log lines of error.go and of convcache.Shared.
type silentLogger struct{}

// Printf does nothing.
func (silentLogger) Printf(context.Context, string, ...any) {}
