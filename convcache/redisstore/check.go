package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"carryover/convcache"
)

// checkTimeout is how long a test of the server may take.
const checkTimeout = time.Second

// The advice of Test. The ACL line and what messages add to it are those of docs/replicas.md.
const (
	adviceACL     = "its ACL must allow +eval +evalsha +hmget +hset +hdel +time +info +pexpire +scan"
	adviceChannel = " +publish +subscribe"
	adviceNo      = "INFO replication shows no master_replid, so that a failover would let tickets be used twice"
)

// Test puts a ticket of no conversation and takes it, in the very way in which turns do, and so tells whether
// the server does what is needed. ErrRemoteForbids is in an error of the set-up; any other means that the server
// does not answer properly now.
func (s *Store) Test(ctx context.Context) error {
	err := s.test(ctx)
	if err != nil {
		s.servers.reload()
		return quiet{s.cfg.explain(err)}
	}
	return nil
}

// test is the test itself.
func (s *Store) test(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	id := convcache.NewTicketID()
	t := convcache.Ticket{Branch: convcache.Branch{ID: id, Deadline: s.cfg.Now().Add(time.Minute)}, Params: []byte("{}")}
	key := convcache.Key(append(id[:], id[:]...))
	server, err := s.servers.of(ctx, s.names.of(key))
	if err != nil {
		return err
	}
	if err := s.testClock(ctx, server); err != nil {
		return err
	}
	if err := s.testTicket(ctx, server, key, &t); err != nil {
		return err
	}
	if err := s.ShareEpoch(ctx, 0, false); err != nil { // before a turn sends a leg
		return err
	}
	if s.cfg.Messages {
		if err := s.channel.test(ctx, server); err != nil {
			return err
		}
	}
	return server.Scan(ctx, 0, s.cfg.Prefix+":*", 1).Err()
}

// testTicket puts, sees and takes a ticket in the time that turns grant: a server that needs longer is of no use
// to them, and one that were tested with more patience would be given up by the next turns again.
func (s *Store) testTicket(ctx context.Context, server redis.UniversalClient, key convcache.Key, t *convcache.Ticket) error {
	name, id := s.names.of(key), t.ID[:]
	branch := string(s.envelope.close(key, t.ID, fieldBranch, encodeBranch(&t.Branch)))
	params := string(s.envelope.close(key, t.ID, fieldParams, encodeParams(t)))
	index := s.envelope.kinOf(key, t).appendIndex(t.ID[:])
	var seen, taken []any
	for _, step := range [...]func(context.Context) error{
		func(ctx context.Context) error {
			_, err := runScript(ctx, s.scripts.put, server, name, index, branch, params, time.Minute.Milliseconds(), "", "")
			return err
		},
		func(ctx context.Context) (err error) {
			seen, err = server.HMGet(ctx, name, "0b").Result()
			return err
		},
		func(ctx context.Context) (err error) {
			taken, err = runScript(ctx, s.scripts.take, server, name, id)
			return err
		},
	} {
		granted, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
		err := step(granted)
		cancel()
		if err != nil {
			return err
		}
	}
	if text(seen, 0) != branch || text(taken, 0) != "taken" || text(taken, 1) != branch || text(taken, 2) != params {
		return fmt.Errorf("what was put did not come back (%q)", text(taken, 0))
	}
	return nil
}

// testClock says so if this process' clock and the server's differ. Nothing goes wrong then, but tickets that
// other replicas made may look expired, or as if made in the future.
func (s *Store) testClock(ctx context.Context, server redis.UniversalClient) error {
	there, err := server.Time(ctx).Result()
	if err != nil {
		return err
	}
	apart := there.Sub(s.cfg.Now())
	if differ := apart.Abs() > maxSkew; s.skewed.Swap(differ) != differ && differ {
		s.cfg.Logger.Warn("this clock and that of redis differ; replicas can't use each other's tickets then", "by", apart.Round(time.Millisecond))
	}
	return nil
}

// explain says what an error of a test means for the operator. It never repeats what may name a credential.
func (c *Config) explain(err error) error {
	switch {
	case errors.Is(err, convcache.ErrRemoteForbids):
		return err
	case errors.Is(err, errNoFence):
		return fmt.Errorf("%w: %s", convcache.ErrRemoteForbids, adviceNo)
	case forbidden(err):
		return fmt.Errorf("%w: %s (%s)", convcache.ErrRemoteForbids, c.adviceACL(), loggable(err))
	case isReply(err, "NOAUTH", "WRONGPASS", "ERR AUTH", "ERR Client sent AUTH", "ERR invalid password"):
		who := "it refuses"
		if c.Topology == Sentinel {
			who = "it or a Sentinel refuses"
		}
		return fmt.Errorf("%w: %s the user name and password", convcache.ErrRemoteForbids, who)
	case isReply(err, "ERR unknown command"):
		return fmt.Errorf("%w: it lacks a command (%s)", convcache.ErrRemoteForbids, loggable(err))
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("check redis: no answer in time; a turn grants %v: %w", c.Timeout, err)
	case errors.Is(err, redis.Nil):
		return fmt.Errorf("check redis: no Sentinel knows a master %q", c.Master)
	}
	return fmt.Errorf("check redis: %w", err)
}

// adviceACL is what the user needs for this topology, database and prefix, and for messages where there are any.
func (c *Config) adviceACL() string {
	advice := adviceACL
	if c.DB != 0 {
		advice += " +select"
	}
	if c.Topology == Cluster {
		advice += " +cluster|slots"
	}
	keys := " on the keys ~" + c.Prefix + ":*"
	if c.Messages {
		return advice + adviceChannel + keys + " and the channels &" + c.Prefix + ":*"
	}
	return advice + keys
}

// Sight is the configuration of a server, besides what Test finds out.
type Sight struct {
	// MaxMemory is how many bytes the server may use, 0 for no bound.
	MaxMemory int64
	// Eviction is its policy when MaxMemory is used up (maxmemory-policy).
	Eviction string
	// Apart is how far its clock is ahead of this process'.
	Apart time.Duration
}

// Look asks one server for its configuration, with commands that Test needs too, and changes nothing. Errors are as in Test.
func (s *Store) Look(ctx context.Context) (Sight, error) {
	seen, err := s.look(ctx)
	if err != nil {
		return Sight{}, quiet{s.cfg.explain(err)}
	}
	return seen, nil
}

func (s *Store) look(ctx context.Context) (seen Sight, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	server, err := s.servers.of(ctx, s.names.of(convcache.Key{}))
	if err != nil {
		return Sight{}, err
	}
	there, err := server.Time(ctx).Result()
	if err != nil {
		return Sight{}, err
	}
	seen.Apart = there.Sub(s.cfg.Now())
	info, err := server.InfoMap(ctx).Result() // Redis 6.2 takes one section at most
	if err != nil {
		return Sight{}, err
	}
	memory := info["Memory"]
	seen.MaxMemory, _ = strconv.ParseInt(memory["maxmemory"], 10, 64) // one that says nothing has no bound
	seen.Eviction = memory["maxmemory_policy"]
	return seen, nil
}
