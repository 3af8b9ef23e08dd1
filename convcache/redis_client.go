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

// sizeable is from how many bytes on their number may explain that an operation took too long. On two cores, over
// loopback, a put takes 0.06 ms for 6 KiB, 0.3 for 60, 0.6 for 120, 1.2 for 240 and 4.5 for 930, or twice as long where
// four others want the cores (BenchmarkRedis_Sizes). So a time-out of 5 ms at 64 KiB shows a server or a network some
// fifteen times slower than that.
//
// A take counts, however large its answer: a turn takes what it has just seen, and that look-up counts as a success,
// so that takes alone never are five failures in a row.
const sizeable = 64 << 10

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
	if sent := lengthOf(args); sent > sizeable && timedOut(err) {
		r.pass(err, "bytes", sent)
		return reply, err
	}
	r.record(err)
	return reply, err
}

// lengthOf returns how many bytes of texts are to be sent.
func lengthOf(args []any) int {
	n := 0
	for _, arg := range args {
		switch arg := arg.(type) {
		case string:
			n += len(arg)
		case []byte:
			n += len(arg)
		}
	}
	return n
}

// runScript runs a script, and makes an error of the answer that it must not run there.
func runScript(ctx context.Context, script *redis.Script, server redis.UniversalClient, key string, args ...any) ([]any, error) {
	reply, err := script.Run(ctx, server, []string{key}, args...).Slice()
	if text(reply, 0) == "unfenced" {
		return nil, errNoFence
	}
	return reply, err
}

// hmget reads fields of a hash from the one server that has it, and tells the breaker how that went. How large
// they are is not known before. After a failure the server is therefore asked for its time as well: if that came
// and the fields did not, they are large, and the server does what is needed for others.
func (r *Redis) hmget(ctx context.Context, key string, fields ...string) ([]any, error) {
	server, err := r.server(ctx, key)
	if err != nil {
		r.record(err)
		return nil, err
	}
	if !r.breaker.doubts() {
		values, err := server.HMGet(ctx, key, fields...).Result()
		r.record(err)
		return values, err
	}
	both := server.Pipeline()
	present := both.Time(ctx)
	reading := both.HMGet(ctx, key, fields...)
	_, _ = both.Exec(ctx) // each command has its own error
	values, err := reading.Result()
	if timedOut(err) && !present.Val().IsZero() {
		r.pass(err)
		return values, err
	}
	r.record(err)
	return values, err
}

// pass takes note of a time-out that says nothing of the server, because of the size of what it was to send or to
// receive. Should the server not answer anything, what is smaller and the tests of Run show that.
func (r *Redis) pass(err error, attrs ...any) {
	r.cfg.Logger.Debug("redis needed too long for what is large", append(attrs, "error", loggable(err))...)
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
