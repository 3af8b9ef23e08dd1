package convcache

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// The limits of a client. go-redis 9.23 by default waits 5 s for an answer even under a context of 5 ms,
// tries three times more, and dials five times.
const (
	redisReadTimeout = 20 * time.Millisecond // for the test of the server; turns have Timeout
	redisDialTimeout = 250 * time.Millisecond
	redisIdleTime    = 4 * time.Minute // below what load balancers and servers usually grant
	redisPool        = 64
	redisMaxConns    = 128
	redisMinIdle     = 4
)

// redisOptions are the options of every client. Nothing that may have been sent is sent again: a put that
// is repeated after its ticket was taken makes that ticket usable twice.
func redisOptions(cfg RedisConfig) *redis.UniversalOptions {
	wait := max(redisReadTimeout, cfg.Timeout)
	return &redis.UniversalOptions{
		Addrs: cfg.Addresses, MasterName: cfg.Master, IsClusterMode: cfg.Topology == Cluster, DB: cfg.DB,
		Username: cfg.Username, Password: cfg.Password,
		SentinelUsername: cfg.SentinelUsername, SentinelPassword: cfg.SentinelPassword,
		TLSConfig: cfg.TLS,

		MaxRetries: -1, MaxRedirects: -1, DialerRetries: 1,
		ContextTimeoutEnabled: true,
		ReadTimeout:           wait, WriteTimeout: wait, DialTimeout: redisDialTimeout, PoolTimeout: cfg.Timeout,
		PoolSize: redisPool, MaxActiveConns: redisMaxConns, MinIdleConns: redisMinIdle, PipelinePoolSize: -1,
		ConnMaxIdleTime: redisIdleTime,

		// An ACL need not allow CLIENT, and Valkey has no maintenance notifications.
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// Nothing was applied: there was nobody to send to, or a script found no fence.
var (
	errNoServer = errors.New("no server for this conversation")
	errNoFence  = errors.New("the server shows no master_replid")
)

// server returns the client of the one server that a key is sent to. For a Cluster that is the client of
// the master of its slot: whatever MaxRetries says, go-redis' ClusterClient repeats a command whose answer was
// lost as often as MaxRedirects allows (osscluster.go process, 9.23.0).
func (r *Redis) server(ctx context.Context, key string) (redis.UniversalClient, error) {
	cluster, ok := r.client.(*redis.ClusterClient)
	if !ok {
		return r.client, nil
	}
	master, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, errors.Join(errNoServer, err)
	}
	return master, nil
}

// run runs a script on the one server that has the key, and tells the breaker how that went. It is sent once;
// a script that the server does not know yet was not run, and is sent whole.
func (r *Redis) run(ctx context.Context, script *redis.Script, key string, args ...any) ([]any, error) {
	server, err := r.server(ctx, key)
	if err != nil {
		r.record(err)
		return nil, err
	}
	reply, err := runScript(ctx, script, server, key, args...)
	r.record(err)
	return reply, err
}

// runScript runs a script, and makes an error of the answer that it must not run there.
func runScript(ctx context.Context, script *redis.Script, server redis.UniversalClient, key string, args ...any) ([]any, error) {
	reply, err := script.Run(ctx, server, []string{key}, args...).Slice()
	if text(reply, 0) == "unfenced" {
		return nil, errNoFence
	}
	return reply, err
}

// hmget reads fields of a conversation.
func (r *Redis) hmget(ctx context.Context, key string, fields ...string) ([]any, error) {
	server, err := r.server(ctx, key)
	if err != nil {
		r.record(err)
		return nil, err
	}
	values, err := server.HMGet(ctx, key, fields...).Result()
	r.record(err)
	return values, err
}

// record tells the breaker how an operation went. A conversation whose key is somebody else's says nothing of
// the server.
func (r *Redis) record(err error) {
	ok := err == nil || isReply(err, "WRONGTYPE")
	if !ok {
		r.failed(err)
	}
	r.breaker.record(ok)
}

// failed keeps what went wrong last, for the line that says so if it goes on. The masters of a Cluster are asked
// for again, beside the turns: by itself the client does so every 60 s only, since it does not see answers like
// MOVED.
func (r *Redis) failed(err error) {
	r.failure.Store(&err)
	r.cfg.Logger.Debug("redis operation failed", "error", loggable(err))
	if cluster, ok := r.client.(*redis.ClusterClient); ok {
		cluster.ReloadState(context.Background())
	}
}

// silentLogger drops what go-redis logs: addresses, and once per failed dial. What matters is in the
// outcomes and in the log lines of redis_health.go.
type silentLogger struct{}

// Printf does nothing.
func (silentLogger) Printf(context.Context, string, ...any) {}
