package convcache

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
)

// Client returns the client, for a look at its options and for the faults of tests.
func (r *Redis) Client() redis.UniversalClient { return r.client }

// KeyName returns the name of a conversation's hash.
func (r *Redis) KeyName(key Key) string { return r.key(key) }

// BarsName returns the name of the hash of all bars.
func (r *Redis) BarsName() string { return r.barsKey() }

// Shares says whether operations are sent.
func (r *Redis) Shares() bool { return r.breaker.allows() }

// Breaker is the breaker of a store.
type Breaker struct{ *breaker }

// NewBreaker returns a closed breaker.
func NewBreaker(now func() time.Time) Breaker { return Breaker{newBreaker(now)} }

// Allows says whether an operation may be sent.
func (b Breaker) Allows() bool { return b.allows() }

// Record counts an operation.
func (b Breaker) Record(ok bool) { b.record(ok) }

// Set opens or closes the breaker.
func (b Breaker) Set(open bool) { b.set(open) }

// Opened tells that the breaker has opened.
func (b Breaker) Opened() <-chan struct{} { return b.opened }

// NewUnconnected returns a store that has no client: good for what needs none, with its breaker open, and for
// Watch.
func NewUnconnected(cfg RedisConfig) *Redis {
	cfg.Logger, cfg.Local.Now = slog.New(slog.DiscardHandler), cfg.Now
	return &Redis{cfg: cfg, breaker: newBreaker(cfg.Now), home: NewMemory(cfg.Local)}
}

// Watch is Run with another test of the server.
func (r *Redis) Watch(ctx context.Context, test func(context.Context) error) error {
	return r.watch(ctx, test)
}

// Record counts an operation that ended so.
func (r *Redis) Record(err error) { r.record(err) }

// OpenBreaker opens the breaker as five failures do.
func (r *Redis) OpenBreaker() { r.breaker.set(true) }

// CloseBreaker closes it as a test that succeeds does.
func (r *Redis) CloseBreaker() { r.breaker.set(false) }
