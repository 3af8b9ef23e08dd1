package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"carryover/convcache"
)

// Store keeps tickets, and marks of engines (marks.go), in a Redis or Valkey server that replicas share. It is a convcache.Remote,
// and all methods are safe for concurrent use.
type Store struct {
	cfg      Config
	servers  *servers
	names    names
	envelope envelope
	scripts  scripts
	lines    *lines
	channel  *Channel
	skewed   atomic.Bool // the last test found that clocks differ
	epoch    atomic.Int64
	replica  convcache.TicketID // the name of this replica among others, random
}

var _ convcache.Remote = (*Store)(nil)

// slots is how many tickets a conversation has room for, as Memory does.
const slots = 4

// New returns a store, and waits for no connection. Test tells whether the servers do what is needed, Close ends it. An
// error is a fault of the config.
func New(cfg Config) (*Store, error) {
	if len(cfg.Addresses) == 0 {
		return nil, errors.New("open redis: no address")
	}
	if cfg.Secret.IsZero() {
		return nil, errors.New("open redis: no secret; replicas must share one")
	}
	if cfg.Topology == Single && len(cfg.Addresses) > 1 || (cfg.Topology == Sentinel) != (cfg.Master != "") {
		return nil, fmt.Errorf("open redis: addresses and master do not fit %v", cfg.Topology)
	}
	if cfg.Prefix == "" {
		cfg.Prefix = defaultPrefix
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
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
	redis.SetLogger(silentLogger{})
	e := newEnvelope(cfg.Secret)
	s := &Store{
		cfg: cfg, servers: newServers(cfg), names: newNames(cfg), envelope: e, scripts: newScripts(sharedLua, takeLua, putLua),
		lines: &lines{logger: cfg.Logger, now: cfg.Now}, replica: convcache.NewTicketID(),
	}
	s.channel = &Channel{name: s.names.channel, servers: s.servers, envelope: e, lines: s.lines}
	return s, nil
}

// Close drops all connections.
func (s *Store) Close() error {
	if err := s.servers.client.Close(); err != nil {
		return fmt.Errorf("close redis: %w", err)
	}
	return nil
}

// Peek returns the usable branches of at most [convcache.MaxKeys] different keys, those of the first key first and the
// newest of a key first, and Found; Expired when no branch is usable and a key has some past their deadline; Empty when
// no key has any. Next to an error it returns the branches of the keys that could be read. It asks each server that has
// a key once for all its keys; what different keys have may not have been there at one moment. It reads the epoch with
// them, and neither params nor the fence: what it shows may turn out Fenced.
func (s *Store) Peek(ctx context.Context, keys []convcache.Key) (branches []convcache.KeyedBranch, outcome convcache.Outcome, err error) {
	keys = convcache.Bounded(keys)
	if len(keys) == 0 {
		return nil, convcache.Empty, nil
	}
	names := make([]string, len(keys), len(keys)+1)
	for i, key := range keys {
		names[i] = s.names.of(key)
	}
	values, err := s.servers.hmgets(ctx, append(names, s.names.epoch), "0i", "1i", "2i", "3i", "0b", "1b", "2b", "3b")
	outcome = convcache.Empty
	for i, key := range keys {
		if values[i] == nil {
			continue
		}
		var expired bool
		if branches, expired = s.branches(branches, key, values[i]); expired {
			outcome = convcache.Expired
		}
	}
	if epoch := values[len(keys)]; err == nil {
		err = s.sawEpoch(epoch)
	}
	switch {
	case err != nil:
		outcome = convcache.Unavailable
	case len(branches) > 0:
		outcome = convcache.Found
	}
	return branches, outcome, err
}

// Take removes exactly the named ticket and returns it with Taken. Consumed means that it is not there any
// more, or was not authentic, Expired that its deadline had passed, Fenced that another master may have
// given it away; it is gone then. After an error it may be gone as well, and is lost then. The epoch is read behind a
// ticket that is Taken: who uses it knows of every rise before the take.
func (s *Store) Take(ctx context.Context, key convcache.Key, id convcache.TicketID) (convcache.Ticket, convcache.Outcome, error) {
	reply, err := s.servers.run(ctx, s.scripts.take, s.names.of(key), id[:])
	if err != nil {
		return convcache.Ticket{}, convcache.Unavailable, err
	}
	switch answer := text(reply, 0); answer {
	case "taken":
	case "expired":
		return convcache.Ticket{}, convcache.Expired, nil
	case "fenced":
		s.lines.tellFenced()
		return convcache.Ticket{}, convcache.Fenced, nil
	case "consumed":
		return convcache.Ticket{}, convcache.Consumed, nil
	default:
		return convcache.Ticket{}, convcache.Unavailable, odd("%q to a take", answer)
	}
	t, err := s.envelope.openTicket(key, id, text(reply, 1), text(reply, 2))
	if err != nil {
		s.lines.warnForged()
		return convcache.Ticket{}, convcache.Consumed, nil
	}
	if !usableAt(t.Branch, s.cfg.Now()) {
		return convcache.Ticket{}, convcache.Expired, nil
	}
	if err := s.readEpoch(ctx); err != nil {
		return convcache.Ticket{}, convcache.Unavailable, err
	}
	return t, convcache.Taken, nil
}
