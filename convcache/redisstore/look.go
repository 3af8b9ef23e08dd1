package redisstore

import (
	"context"
	"strconv"
	"time"

	"carryover/convcache"
)

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
