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

// Store is a convcache.Remote on Redis or Valkey. All methods are safe for concurrent use.
type Store struct {
	cfg      Config
	servers  *servers
	names    names
	envelope envelope
	scripts  scripts
	lines    *lines
	Channel  *Channel
	skewed   atomic.Bool // the last test found different clocks
	epoch    atomic.Int64
	replica  convcache.TicketID // this replica's random name
}

var _ convcache.Remote = (*Store)(nil)

// slots is the most tickets of a conversation, as in convcache.Memory.
const slots = 4

// New returns a store without waiting for a connection. Test checks the servers, Close ends the store. An error is a fault of the config.
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
	s.Channel = &Channel{name: s.names.channel, servers: s.servers, envelope: e, lines: s.lines}
	return s, nil
}

// Close drops all connections.
func (s *Store) Close() error {
	if err := s.servers.client.Close(); err != nil {
		return fmt.Errorf("close redis: %w", err)
	}
	return nil
}

// version is in every name, and changes with the fields.
const version = "1"

type names struct {
	conversations string // prefix of each conversation's hash
	marks         string // the hash of marks of engines
	epoch         string // the hash with the epoch of the fleet
	pinned        string // prefix of the hash of each incarnation of decode
	channel       string
}

// newNames keeps "bars" as the hash of marks: under another name, replicas of two releases would miss each other's drains during an
// upgrade. Channels are the same in all databases, so theirs has the database's number.
func newNames(cfg Config) names {
	begin := cfg.Prefix + ":" + version + ":"
	return names{
		conversations: begin + "{", marks: begin + "bars", epoch: begin + "epoch", pinned: begin + "pinned:",
		channel: begin + "channel:" + strconv.Itoa(cfg.DB),
	}
}

// of returns the key of a conversation's hash. Its hash tag for Redis Cluster is the conversation; other hashes have no tag.
func (n names) of(key convcache.Key) string { return n.conversations + key.String() + "}" }

// Peek returns usable branches of the first [convcache.MaxKeys] keys, in the order of the keys and the newest first: Found; Expired if all
// have expired; Empty if there are none. Next to an error it returns the branches of the keys that it could read. Each server gets one
// request, so branches of different keys may be of different moments. It reads the epoch, but not the fence: a branch may turn out Fenced.
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

// branches appends the branches of a key: four indexes, then as many branches. expired means that some have expired.
func (s *Store) branches(to []convcache.KeyedBranch, key convcache.Key, values []any) (_ []convcache.KeyedBranch, expired bool) {
	type entry struct {
		order  string
		branch convcache.Branch
	}
	var entries []entry
	now := s.cfg.Now()
	for slot := range slots {
		index, value := text(values, slot), text(values, slots+slot)
		id, ok := idIn(index)
		if !ok {
			continue
		}
		b, err := s.envelope.openBranch(key, id, value)
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

// Offsets in an index, see shared.lua.
const (
	indexOrder = 53
	indexID    = 63
	indexSize  = 108
)

// idIn returns the ticket's id in an index; ok is false for any other text.
func idIn(index string) (id convcache.TicketID, ok bool) {
	if len(index) != indexSize {
		return id, false
	}
	return convcache.TicketID([]byte(index[indexID : indexID+len(id)])), true
}

// maxSkew is how far another replica's clock may be ahead of this one's.
const maxSkew = 2 * time.Second

// usableAt judges by this process' wall clock. The deadline of a ticket from the future means nothing.
func usableAt(b convcache.Branch, now time.Time) bool {
	return b.Deadline.After(now) && !b.FreshAsOf.After(now.Add(maxSkew))
}

// Take removes exactly this ticket and returns Taken. Otherwise the ticket is gone: Consumed if it was not there or not authentic, Expired if
// its deadline had passed, Fenced if another master may have given it away. After an error it may be gone, and counts as lost. Take reads the
// epoch after the ticket, so the caller knows of every rise before the take.
func (s *Store) Take(ctx context.Context, key convcache.Key, id convcache.TicketID) (none convcache.Ticket, outcome convcache.Outcome, err error) {
	reply, err := s.servers.run(ctx, s.scripts.take, s.names.of(key), id[:])
	if err != nil {
		return none, convcache.Unavailable, err
	}
	switch answer := text(reply, 0); answer {
	case "taken":
	case "expired":
		return none, convcache.Expired, nil
	case "fenced":
		if s.lines.fenced.due(s.cfg.Now()) {
			s.cfg.Logger.Info("redis has failed over or restarted; tickets from before are not used")
		}
		return none, convcache.Fenced, nil
	case "consumed":
		return none, convcache.Consumed, nil
	default:
		return none, convcache.Unavailable, odd("%q to a take", answer)
	}
	t, err := s.envelope.openTicket(key, id, text(reply, 1), text(reply, 2))
	if err != nil {
		s.lines.warnForged()
		return none, convcache.Consumed, nil
	}
	if !usableAt(t.Branch, s.cfg.Now()) {
		return none, convcache.Expired, nil
	}
	epoch, err := s.servers.hmget(ctx, s.names.epoch, "0i")
	if err == nil {
		err = s.sawEpoch(epoch)
	}
	if err != nil {
		return none, convcache.Unavailable, err
	}
	return t, convcache.Taken, nil
}

// countBatch is how many keys a server scans in one step. A million keys take about 0.3 s.
const countBatch = 1000

// Count returns the number of conversations in Redis, including those with only notes.
func (s *Store) Count(ctx context.Context) (int, error) {
	cluster, ok := s.servers.client.(*redis.ClusterClient)
	if !ok {
		return s.scan(ctx, s.servers.client)
	}
	var mu sync.Mutex // guards total, because all masters are asked at once
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

// scan counts the conversations of one server: keys with a hash tag.
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
