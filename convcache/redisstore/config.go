package redisstore

import (
	"crypto/tls"
	"log/slog"
	"time"

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
