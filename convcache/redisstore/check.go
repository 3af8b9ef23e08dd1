package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"carryover/convcache"
)

const checkTimeout = time.Second

// The advice of Test; docs/replicas.md has the same ACL.
const (
	adviceACL     = "its ACL must allow +eval +evalsha +hmget +hset +hdel +time +info +pexpire +scan"
	adviceChannel = " +publish +subscribe"
	adviceNo      = "INFO replication shows no master_replid, so a failover could let tickets be used twice"
)

// Test puts and takes a ticket of no conversation, as turns do. ErrRemoteForbids is a fault of the set-up; after any other error the server
// may work later.
func (s *Store) Test(ctx context.Context) error {
	err := s.test(ctx)
	if err != nil {
		s.servers.reload()
		return quiet{s.cfg.explain(err)}
	}
	return nil
}

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
	apart, err := s.apart(ctx, server)
	if err != nil {
		return err
	}
	if differ := apart.Abs() > maxSkew; s.skewed.Swap(differ) != differ && differ {
		s.cfg.Logger.Warn("the clocks of this process and of redis differ; replicas can't use each other's tickets", "by", apart.Round(time.Millisecond))
	}
	if err := s.testTicket(ctx, key, t); err != nil {
		return err
	}
	if err := s.ShareEpoch(ctx, 0, false); err != nil { // before a turn sends a leg
		return err
	}
	if s.cfg.Messages {
		if err := s.Channel.test(ctx, server); err != nil {
			return err
		}
	}
	return server.Scan(ctx, 0, s.cfg.Prefix+":*", 1).Err()
}

// testTicket has the time limit of turns. A server that needs longer would pass a more patient test, and the next turns would give it up
// again.
func (s *Store) testTicket(ctx context.Context, key convcache.Key, t convcache.Ticket) error {
	var seen, outcome convcache.Outcome
	var taken convcache.Ticket
	for _, step := range [...]func(context.Context) error{
		func(ctx context.Context) (err error) {
			_, _, err = s.put(ctx, key, t, math.MaxInt) // whatever the bound
			return err
		},
		func(ctx context.Context) (err error) {
			_, seen, err = s.Peek(ctx, []convcache.Key{key})
			return err
		},
		func(ctx context.Context) (err error) {
			taken, outcome, err = s.Take(ctx, key, t.ID)
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
	if seen != convcache.Found || outcome != convcache.Taken || !bytes.Equal(taken.Params, t.Params) {
		return fmt.Errorf("the server did not return the ticket that was put (%v)", outcome)
	}
	return nil
}

// apart returns how far the server's clock is ahead. If clocks differ, tickets of other replicas may look expired, or made in the future.
func (s *Store) apart(ctx context.Context, server redis.UniversalClient) (time.Duration, error) {
	there, err := server.Time(ctx).Result()
	return there.Sub(s.cfg.Now()), err
}

// explain turns an error of a test into advice. It repeats nothing that may name a credential.
func (c *Config) explain(err error) error {
	switch {
	case errors.Is(err, convcache.ErrRemoteForbids):
		return err
	case errors.Is(err, errNoFence):
		return fmt.Errorf("%w: %s", convcache.ErrRemoteForbids, adviceNo)
	case isReply(err, "NOPERM", "ERR The user executing the script can't"): // the latter from Redis 7.0 (script.c scriptVerifyACL)
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

// Sight is the configuration of a server that Test does not report.
type Sight struct {
	// MaxMemory is the bound in bytes, 0 for none.
	MaxMemory int64
	// Eviction is maxmemory-policy, for a full server.
	Eviction string
	// Apart is how far the server's clock is ahead of this process'.
	Apart time.Duration
}

// Look reads the configuration of one server with commands that Test needs, too. It changes nothing. Errors are as in Test.
func (s *Store) Look(ctx context.Context) (seen Sight, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	server, err := s.servers.of(ctx, s.names.of(convcache.Key{}))
	var info map[string]map[string]string
	if err == nil {
		seen.Apart, err = s.apart(ctx, server)
	}
	if err == nil {
		info, err = server.InfoMap(ctx).Result() // Redis 6.2 takes at most one section
	}
	if err != nil {
		return Sight{}, quiet{s.cfg.explain(err)}
	}
	memory := info["Memory"]
	seen.MaxMemory, _ = strconv.ParseInt(memory["maxmemory"], 10, 64) // no number means no bound
	seen.Eviction = memory["maxmemory_policy"]
	return seen, nil
}
