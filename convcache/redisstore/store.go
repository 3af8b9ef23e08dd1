package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
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
		cfg: cfg, servers: &servers{client: redis.NewUniversalClient(clientOptions(cfg)), logger: cfg.Logger}, names: newNames(cfg), envelope: e, scripts: newScripts(sharedLua, takeLua, putLua),
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

// version is in every name. A change of the fields takes another version.
const version = "1"

// names are what a store's data is called in Redis.
type names struct {
	conversations string // begins the hash of each conversation
	marks         string // the hash of marks of engines
	epoch         string // the hash with the epoch of the fleet
	pinned        string // begins the hash of each incarnation of decode, with what replicas pin on it
	channel       string
}

// newNames returns the names under the prefix of a config. The hash of marks stays "bars": under
// another name replicas of two releases would miss each other's quarantines while a deployment is upgraded. Redis has
// the same channels in all databases.
func newNames(cfg Config) names {
	begin := cfg.Prefix + ":" + version + ":"
	return names{
		conversations: begin + "{", marks: begin + "bars", epoch: begin + "epoch", pinned: begin + "pinned:",
		channel: begin + "channel:" + strconv.Itoa(cfg.DB),
	}
}

// of is the name of a conversation's hash. All of it that differs is the hash tag of Redis Cluster. Other hashes have
// no tag.
func (n names) of(key convcache.Key) string { return n.conversations + key.String() + "}" }

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

// branches appends what Peek got of a key to the branches of others: four indexes, then as many branches. expired says
// that some have passed their deadline.
func (s *Store) branches(to []convcache.KeyedBranch, key convcache.Key, values []any) (_ []convcache.KeyedBranch, expired bool) {
	type entry struct {
		order  string
		branch convcache.Branch
	}
	var entries []entry
	now := s.cfg.Now()
	for slot := range slots {
		index, _ := values[slot].(string)
		value, _ := values[slots+slot].(string)
		if len(index) != indexSize {
			continue
		}
		b, err := s.envelope.openBranch(key, convcache.TicketID([]byte(index[indexID:indexID+16])), []byte(value))
		switch {
		case err != nil:
			s.lines.warnForged()
		case !usableAt(b, now):
			expired = true
		default:
			entries = append(entries, entry{index[indexOrder:indexID], b})
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(b.order, a.order) })
	to = slices.Grow(to, len(entries))
	for _, e := range entries {
		to = append(to, convcache.KeyedBranch{Key: key, Branch: e.branch})
	}
	return to, expired
}

// Where things are in an index, see shared.lua.
const (
	indexOrder = 53
	indexID    = 63
	indexSize  = 108
)

// maxSkew is how far ahead of this process' clock another replica's may be.
const maxSkew = 2 * time.Second

// usableAt reports whether a ticket may still be handed out by this process' clock. One that was made in the
// future shows that clocks disagree, and then its deadline means nothing. What was read has a wall reading only.
func usableAt(b convcache.Branch, now time.Time) bool {
	return b.Deadline.After(now) && !b.FreshAsOf.After(now.Add(maxSkew))
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
		if s.lines.fenced.due(s.cfg.Now()) {
			s.cfg.Logger.Info("redis has failed over or restarted; tickets from before are not used")
		}
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

// countBatch is how many keys a server looks at in one step of a count. A million keys take about 0.3 s.
const countBatch = 1000

// Count returns the number of conversations in Redis, including those with only notes.
func (s *Store) Count(ctx context.Context) (int, error) {
	cluster, ok := s.servers.client.(*redis.ClusterClient)
	if !ok {
		return s.scan(ctx, s.servers.client)
	}
	var mu sync.Mutex // guards total: masters are asked at the same time
	total := 0
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		n, err := s.scan(ctx, master)
		mu.Lock()
		defer mu.Unlock()
		total += n
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("count keys: %w", err)
	}
	return total, nil
}

// scan counts the conversations of one server: the keys with a hash tag, which the hashes of quarantines do not have.
func (s *Store) scan(ctx context.Context, server redis.UniversalClient) (int, error) {
	n, cursor := 0, uint64(0)
	for {
		keys, next, err := server.Scan(ctx, cursor, globEscape.Replace(s.names.conversations)+"*", countBatch).Result()
		if err != nil {
			return 0, fmt.Errorf("count keys: %w", err)
		}
		n += len(keys)
		if next == 0 {
			return n, nil
		}
		cursor = next
	}
}

// globEscape makes a text match itself in SCAN.
//
//nolint:gochecknoglobals // immutable
var globEscape = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)
