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

// Store keeps tickets, and quarantines (incarnations.go), in a Redis or Valkey server that replicas share. It is a convcache.Remote,
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
}

var _ convcache.Remote = (*Store)(nil)

const (
	// noFence stands for master_replid where that is not to be read.
	noFence = "unfenced--unfenced--unfenced--unfenced--"
	// slots is how many tickets a conversation has room for, as Memory does.
	slots = 4
)

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
	s := &Store{
		cfg: cfg, servers: newServers(cfg), names: newNames(cfg), envelope: e, scripts: newScripts(sharedLua, takeLua, putLua),
		lines: &lines{logger: cfg.Logger, now: cfg.Now},
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

// fence is what scripts compare with, empty to have them read it.
func (s *Store) fence() string {
	if s.cfg.Unfenced {
		return noFence
	}
	return ""
}

// Peek returns the usable branches of a conversation, newest first, and Found; Expired when all that is there has
// passed its deadline; Empty when nothing is there. It reads neither params nor the fence: what it shows may turn
// out Fenced.
func (s *Store) Peek(ctx context.Context, key convcache.Key) ([]convcache.Branch, convcache.Outcome, error) {
	values, err := s.servers.hmget(ctx, s.names.of(key), "0i", "1i", "2i", "3i", "0b", "1b", "2b", "3b")
	if err != nil {
		return nil, convcache.Unavailable, err
	}
	branches, outcome := s.branches(key, values)
	return branches, outcome, nil
}

// Take removes exactly the named ticket and returns it with Taken. Consumed means that it is not there any
// more, or was not authentic, Expired that its deadline had passed, Fenced that another master may have
// given it away; it is gone then. After an error it may be gone as well, and is lost then.
func (s *Store) Take(ctx context.Context, key convcache.Key, id convcache.TicketID) (convcache.Ticket, convcache.Outcome, error) {
	reply, err := s.servers.run(ctx, s.scripts.take, s.names.of(key), id[:], s.fence())
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
	return t, convcache.Taken, nil
}
