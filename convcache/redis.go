package convcache

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis keeps tickets, and bars (redis_bars.go), in a Redis or Valkey server that replicas share. All methods
// are safe for concurrent use.
//
//   - A ticket has one home. It is in Redis, or, if it is larger than MaxValue or while Redis is known not to
//     answer, in this process: never in both, because then it could be taken in both. What one home has is
//     displaced by no put to the other; it ends with its time.
//   - Whether a ticket has been taken is decided by one script on one server, and only for tickets that were
//     put while this server was master (redis_shared.lua). After a failover, a failback or a restart from a
//     file all older tickets are Fenced.
//   - A ticket ends by the first of three clocks: the server's at the take, and this process' against the
//     deadline in the value and against the key's own expiry.
//   - A command whose answer did not come is not sent again.
//   - Values tell nothing of what was said, are authentic, and with a seal key unreadable (envelope.go).
//
// An operation costs at most what its context grants, and nothing while the breaker is open.
type Redis struct {
	cfg      RedisConfig
	client   redis.UniversalClient
	envelope envelope
	scripts  scripts
	breaker  *breaker
	home     *Memory // of tickets that Redis certainly has not
	count    keyCount
	state    atomic.Int32          // a RedisState
	failure  atomic.Pointer[error] // of the last operation or test that failed
	skewed   atomic.Bool           // the last test found that clocks differ
	forged   limited               // lines about values that are not authentic
	fenced   limited               // lines about tickets of another master
	large    limited               // lines about tickets that are not shared for their size
}

//go:embed redis_shared.lua
var sharedLua string

//go:embed redis_take.lua
var takeLua string

//go:embed redis_put.lua
var putLua string

// scripts are what Redis runs in one step each.
type scripts struct {
	take, put, bar *redis.Script
}

func newScripts(shared, take, put string) scripts {
	return scripts{take: redis.NewScript(shared + take), put: redis.NewScript(shared + put), bar: redis.NewScript(barLua)}
}

const (
	// redisVersion is in every key. A change of the fields takes another version.
	redisVersion = "1"
	// noFence stands for master_replid where that is not to be read.
	noFence = "unfenced--unfenced--unfenced--unfenced--"
)

// NewRedis returns a store, and waits for no connection. Check tells whether the servers do what is needed, Run
// must run beside it, Close ends it. An error is a fault of the config.
func NewRedis(cfg RedisConfig) (*Redis, error) {
	if len(cfg.Addresses) == 0 {
		return nil, errors.New("open redis: no address")
	}
	if len(cfg.Secret.key) == 0 {
		return nil, errors.New("open redis: no secret; replicas must share one")
	}
	if cfg.Topology == Single && len(cfg.Addresses) > 1 || (cfg.Topology == Sentinel) != (cfg.Master != "") {
		return nil, fmt.Errorf("open redis: addresses and master do not fit %v", cfg.Topology)
	}
	if cfg.Unfenced && cfg.Topology != Single {
		return nil, fmt.Errorf("open redis: %v needs the fence: a failover would let tickets be used twice", cfg.Topology)
	}
	if cfg.MaxValue > largestMaxValue {
		return nil, fmt.Errorf("open redis: values of up to %d bytes; %d are the most", cfg.MaxValue, largestMaxValue)
	}
	e, err := newEnvelope(cfg.Secret, cfg.SealKey)
	if err != nil {
		return nil, fmt.Errorf("open redis: %w", err)
	}
	if cfg.Prefix == "" {
		cfg.Prefix = defaultPrefix
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultRedisTimeout
	}
	if cfg.MaxValue <= 0 {
		cfg.MaxValue = defaultMaxValue
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Local.Now == nil {
		cfg.Local.Now = cfg.Now
	}
	redis.SetLogger(silentLogger{})
	return &Redis{
		cfg: cfg, client: redis.NewUniversalClient(redisOptions(cfg)), envelope: e,
		scripts: newScripts(sharedLua, takeLua, putLua),
		breaker: newBreaker(cfg.Now), home: NewMemory(cfg.Local),
	}, nil
}

// Close drops all connections.
func (r *Redis) Close() error {
	if err := r.client.Close(); err != nil {
		return fmt.Errorf("close redis: %w", err)
	}
	return nil
}

// key is the name of a conversation's hash. All of it that differs is the hash tag of Redis Cluster.
func (r *Redis) key(key Key) string {
	return r.cfg.Prefix + ":" + redisVersion + ":{" + key.String() + "}"
}

// fence is what scripts compare with, empty to have them read it.
func (r *Redis) fence() string {
	if r.cfg.Unfenced {
		return noFence
	}
	return ""
}

// Peek returns the usable branches of a conversation, newest first of each home, and Found; Expired when all
// that is there has passed its deadline; Empty when nothing is there; Unavailable when that is not known. It
// reads neither params nor the fence: what it shows may turn out Fenced.
func (r *Redis) Peek(ctx context.Context, key Key) ([]Branch, Outcome) {
	branches, local := r.home.Peek(ctx, key)
	if local == Unavailable || !r.breaker.allows() {
		return branches, found(branches, Unavailable)
	}
	values, err := r.hmget(ctx, r.key(key), "0i", "1i", "2i", "3i", "0b", "1b", "2b", "3b")
	if err != nil || len(values) != 2*maxBranches {
		return branches, found(branches, Unavailable)
	}
	shared, outcome := r.branches(key, values)
	if outcome == Empty {
		outcome = local
	}
	branches = append(branches, shared...)
	return branches, found(branches, outcome)
}

// found is Found where there is a branch, whatever else was not there.
func found(branches []Branch, otherwise Outcome) Outcome {
	if len(branches) > 0 {
		return Found
	}
	return otherwise
}

// Take removes exactly the named ticket and returns it with Taken. Consumed means that it is not there any
// more, or was not authentic, Expired that its deadline had passed, Fenced that another master may have
// given it away; it is gone then. After Unavailable it may be gone as well, and is nobody's.
func (r *Redis) Take(ctx context.Context, key Key, id TicketID) (Ticket, Outcome) {
	if t, outcome := r.home.Take(ctx, key, id); outcome != Consumed {
		return t, outcome
	}
	if !r.breaker.allows() {
		return Ticket{}, Unavailable
	}
	reply, err := r.run(ctx, r.scripts.take, r.key(key), id[:], r.fence())
	if err != nil {
		return Ticket{}, Unavailable
	}
	switch text(reply, 0) {
	case "taken":
	case "expired":
		return Ticket{}, Expired
	case "fenced":
		r.noteFenced()
		return Ticket{}, Fenced
	case "consumed":
		return Ticket{}, Consumed
	default:
		return Ticket{}, Unavailable
	}
	t, err := r.openTicket(key, id, text(reply, 1), text(reply, 2))
	if err != nil {
		r.warnForged()
		return Ticket{}, Consumed
	}
	if !usableAt(t, r.cfg.Now()) {
		return Ticket{}, Expired
	}
	return t, Taken
}

// Put keeps the ticket for ttl, or until the deadline that it already carries if that is sooner, as the
// newest branch of the conversation, and returns Stored. The ticket is one that the caller has made or taken,
// and puts once; in Redis one of the same id is replaced. What it removed is the caller's, as if taken: the
// branch with the same history, branches whose chain is contained in the ticket's, and the oldest of five.
//
// A ticket larger than MaxValue stays in this process, and other replicas do not see it. Nothing is stored when
// Put returns Expired (no time left) or Refused (too large for this process too). After Unavailable the ticket
// may have been stored: the caller must not use it, and other replicas may.
func (r *Redis) Put(ctx context.Context, key Key, t Ticket, ttl time.Duration) ([]Ticket, Outcome) {
	if ctx.Err() != nil {
		return nil, Unavailable
	}
	now := r.cfg.Now()
	t.Deadline = deadlineOf(&t, now, ttl)
	life := t.Deadline.Sub(now).Milliseconds()
	if life <= 0 {
		return nil, Expired
	}
	if !r.breaker.allows() {
		return r.putHome(ctx, key, t, ttl)
	}
	branch := r.envelope.close(key, t.ID, fieldBranch, encodeBranch(&t, r.envelope.mask(key, t.ID, t.History)))
	params := r.envelope.close(key, t.ID, fieldParams, encodeParams(&t))
	if size := len(branch) + len(params); size > r.cfg.MaxValue {
		r.noteLarge(size)
		return r.putHome(ctx, key, t, ttl) // nothing was sent
	}
	kin := r.envelope.kinOf(key, &t)
	index := kin.appendIndex(t.ID[:])
	reply, err := r.run(ctx, r.scripts.put, r.key(key), index, branch, params, life, r.fence(), "")
	if text(reply, 0) == "tags" { // nothing is done yet: there are others to compare with
		reply, err = r.run(ctx, r.scripts.put, r.key(key), index, branch, params, life, r.fence(), kin.tags(t.Chain))
	}
	switch {
	case err != nil && notApplied(err):
		return r.putHome(ctx, key, t, ttl)
	case err != nil || text(reply, 0) != "stored":
		return nil, Unavailable
	}
	return r.displaced(key, reply[1:]), Stored
}

// putHome keeps a ticket in this process, of which nothing was sent, or nothing applied, though the time that ctx
// granted may be used up.
func (r *Redis) putHome(ctx context.Context, key Key, t Ticket, ttl time.Duration) ([]Ticket, Outcome) {
	return r.home.Put(context.WithoutCancel(ctx), key, t, ttl)
}

// EvictStale removes what has expired in this process and returns how many conversations went with it. Redis
// does so by itself.
func (r *Redis) EvictStale() int { return r.home.EvictStale() }
