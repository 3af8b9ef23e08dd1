package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"log/slog"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"carryover/convcache"
	"carryover/convcache/redisstore"
)

// parallel is how many parallel tests run at once on a core: they wait for servers most of the time.
const parallel = 2

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(parallel*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// replica is what a replica of Carryover has: a store on Redis, and around it the local home and the breaker.
type replica struct {
	*convcache.Shared
	t     testing.TB
	store *redisstore.Store
	cfg   convcache.SharedConfig
}

// newReplica returns a replica around a store.
func newReplica(tb testing.TB, store *redisstore.Store, cfg convcache.SharedConfig) *replica {
	tb.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Tell = func(string) {}
	return &replica{convcache.NewShared(way{store}, cfg), tb, store, cfg}
}

func (r *replica) Close() error                  { return r.store.Close() }
func (r *replica) Client() redis.UniversalClient { return r.store.Client() }
func (r *replica) KeyName(key Key) string        { return r.store.KeyName(key) }
func (r *replica) MarksName() string             { return r.store.MarksName() }
func (r *replica) EpochName() string             { return r.store.EpochName() }

// Shares says whether operations are sent.
func (r *replica) Shares() bool {
	asked := false
	r.Peek(context.WithValue(context.Background(), wayKey{}, wayfarer{asked: &asked}), []Key{{}})
	return asked
}

// OpenBreaker has operations fail until the breaker opens.
func (r *replica) OpenBreaker() {
	for r.Shares() {
		r.Peek(context.WithValue(context.Background(), wayKey{}, wayfarer{}), []Key{{}})
	}
}

// CloseBreaker has a test succeed, which closes it.
func (r *replica) CloseBreaker() {
	_ = r.Check(context.WithValue(context.Background(), wayKey{}, wayfarer{})) // no error
}

// way is the way from a replica to its store. Contexts of wayfarers end here.
type way struct{ *redisstore.Store }

type wayKey struct{}

// wayfarer is in the context of an operation that does not get to the store. Of one that is only to be seen asked is
// set, and it counts for nothing; another look-up fails, and another test succeeds.
type wayfarer struct{ asked *bool }

// Peek asks the store, unless ctx is that of a wayfarer.
func (w way) Peek(ctx context.Context, keys []Key) ([]KeyedBranch, Outcome, error) {
	f, ok := ctx.Value(wayKey{}).(wayfarer)
	if !ok {
		return w.Store.Peek(ctx, keys)
	}
	err := errors.New("did not get there")
	if f.asked != nil {
		*f.asked = true
		err = &convcache.RemoteError{Err: err, Shows: convcache.ShowsNothing}
	}
	return nil, Unavailable, err
}

// Test tests the store, unless ctx is that of a wayfarer.
func (w way) Test(ctx context.Context) error {
	if _, ok := ctx.Value(wayKey{}).(wayfarer); ok {
		return nil
	}
	return w.Store.Test(ctx)
}

// clock is a clock that moves when told.
type clock struct {
	nanos atomic.Int64
}

func (c *clock) now() time.Time          { return time.Unix(1_800_000_000, c.nanos.Load()) }
func (c *clock) advance(d time.Duration) { c.nanos.Add(int64(d)) }

// key returns the key of conversation n.
func key(n int) Key { return Key{byte(n), byte(n >> 8), byte(n >> 16)} }

// ticket returns a ticket with params of the given size and tokens of its own.
func ticket(n, size int) Ticket {
	return Ticket{
		Branch: convcache.Branch{ID: convcache.NewTicketID(), Chain: Chain{Tokens: 1 + n, Whole: uint64(n)}},
		Params: bytes.Repeat([]byte("x"), size),
	}
}

// mustSecret returns the secret made of a text.
func mustSecret(tb testing.TB, text string) convcache.Secret {
	tb.Helper()
	secret, err := convcache.NewSecret([]byte(text))
	must(tb, err)
	return secret
}
