package convcache

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrRedisForbids is in the errors of Check when the server answers but must not, or can't, do what is needed.
// Waiting does not help then.
var ErrRedisForbids = errors.New("redis forbids what is needed")

// checkTimeout is how long a test of the server may take.
const checkTimeout = time.Second

// The advice of Check. The ACL line is the one of the README.
const (
	adviceACL = "its ACL must allow +eval +evalsha +hmget +hset +hdel +time +info +pexpire +scan"
	adviceNo  = "INFO replication shows no master_replid, so that a failover would let tickets be used twice; " +
		"a single server that keeps nothing on disk can be used with the fence off"
	adviceRole = "the fence is off, and the server has a replica, is one, or writes an append-only file"
)

// Check puts a ticket of no conversation and takes it, in the very way in which turns do, and so tells whether
// the server does what is needed. ErrRedisForbids is an error of the set-up; any other means that the server
// does not answer properly now. The store shares tickets from the first Check that succeeds, or, if none is
// made, from its beginning.
func (r *Redis) Check(ctx context.Context) error {
	err := r.test(ctx)
	if err != nil {
		r.failed(err)
	}
	r.breaker.set(err != nil)
	r.state.Store(int32(stateAfter(err)))
	return err
}

// test is the test itself.
func (r *Redis) test(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	id := NewTicketID()
	t := Ticket{ID: id, Params: []byte("{}"), Deadline: r.cfg.Now().Add(time.Minute)}
	key := Key(append(id[:], id[:]...))
	server, err := r.server(ctx, r.key(key))
	if err != nil {
		return r.explain(err)
	}
	if err := r.testFence(ctx, server); err != nil {
		return err
	}
	if err := r.testClock(ctx, server); err != nil {
		return err
	}
	if err := r.testTicket(ctx, server, key, &t); err != nil {
		return err
	}
	if _, _, err := server.Scan(ctx, 0, r.cfg.Prefix+":*", 1).Result(); err != nil {
		return r.explain(err)
	}
	return nil
}

// testTicket puts, sees and takes a ticket in the time that turns grant: a server that needs longer is of no use
// to them, and one that were tested with more patience would be given up by the next turns again.
func (r *Redis) testTicket(ctx context.Context, server redis.UniversalClient, key Key, t *Ticket) error {
	name, id := r.key(key), t.ID[:]
	branch := string(r.envelope.close(key, t.ID, fieldBranch, encodeBranch(t, Digest{})))
	params := string(r.envelope.close(key, t.ID, fieldParams, encodeParams(t)))
	index := r.envelope.kinOf(key, t).appendIndex(t.ID[:])
	var seen, taken []any
	for _, step := range [...]func(context.Context) error{
		func(ctx context.Context) error {
			_, err := runScript(ctx, r.scripts.put, server, name, index, branch, params, time.Minute.Milliseconds(), r.fence(), "")
			return err
		},
		func(ctx context.Context) (err error) {
			seen, err = server.HMGet(ctx, name, "0b").Result()
			return err
		},
		func(ctx context.Context) (err error) {
			taken, err = runScript(ctx, r.scripts.take, server, name, id, r.fence())
			return err
		},
	} {
		granted, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
		err := step(granted)
		cancel()
		if err != nil {
			return r.explain(err)
		}
	}
	if text(seen, 0) != branch || text(taken, 0) != "taken" || text(taken, 1) != branch || text(taken, 2) != params {
		return fmt.Errorf("check redis: what was put did not come back (%q)", text(taken, 0))
	}
	return nil
}

// testFence looks, where there is no fence, whether one would be needed.
func (r *Redis) testFence(ctx context.Context, server redis.UniversalClient) error {
	if !r.cfg.Unfenced {
		return nil
	}
	info, err := server.InfoMap(ctx).Result() // Redis 6.2 takes one section at most
	if forbidden(err) {
		return nil // that may be why there is no fence
	}
	if err != nil {
		return r.explain(err)
	}
	replication, persistence := info["Replication"], info["Persistence"]
	if replication["role"] != "master" || replication["connected_slaves"] != "0" || persistence["aof_enabled"] != "0" {
		return fmt.Errorf("%w: %s", ErrRedisForbids, adviceRole)
	}
	return nil
}

// testClock says so if this process' clock and the server's differ. Nothing goes wrong then, but tickets that
// other replicas made may look expired, or as if made in the future.
func (r *Redis) testClock(ctx context.Context, server redis.UniversalClient) error {
	there, err := server.Time(ctx).Result()
	if err != nil {
		return r.explain(err)
	}
	apart := there.Sub(r.cfg.Now())
	if differ := apart.Abs() > maxSkew; r.skewed.Swap(differ) != differ && differ {
		r.cfg.Logger.Warn("this clock and that of redis differ; replicas can't use each other's tickets then", "by", apart.Round(time.Millisecond))
	}
	return nil
}

// explain says what an error of a test means for the operator. It never repeats what may name a credential.
func (r *Redis) explain(err error) error {
	switch {
	case errors.Is(err, errNoFence):
		return fmt.Errorf("%w: %s", ErrRedisForbids, adviceNo)
	case forbidden(err):
		return fmt.Errorf("%w: %s (%s)", ErrRedisForbids, r.adviceACL(), loggable(err))
	case isReply(err, "NOAUTH", "WRONGPASS", "ERR AUTH", "ERR Client sent AUTH", "ERR invalid password"):
		who := "it refuses"
		if r.cfg.Topology == Sentinel {
			who = "it or a Sentinel refuses"
		}
		return fmt.Errorf("%w: %s the user name and password", ErrRedisForbids, who)
	case isReply(err, "ERR unknown command"):
		return fmt.Errorf("%w: it lacks a command (%s)", ErrRedisForbids, loggable(err))
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("check redis: no answer in time; a turn grants %v: %w", r.cfg.Timeout, err)
	case errors.Is(err, redis.Nil):
		return fmt.Errorf("check redis: no Sentinel knows a master %q", r.cfg.Master)
	}
	return fmt.Errorf("check redis: %w", err)
}

// adviceACL is what the user needs for this topology, database and prefix.
func (r *Redis) adviceACL() string {
	advice := adviceACL
	if r.cfg.DB != 0 {
		advice += " +select"
	}
	if r.cfg.Topology == Cluster {
		advice += " +cluster|slots"
	}
	return advice + " on the keys ~" + r.cfg.Prefix + ":*"
}
