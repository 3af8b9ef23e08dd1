package redisstore_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/convcache/redisstore"
	"carryover/convcache/redistest"
)

// granted is what a test grants an operation where the bound is the point, and late how much later than that
// it may end on two busy cores: less than the store's own limit, patient.
const (
	granted = 50 * time.Millisecond
	late    = 3 * time.Second
)

// timed runs an operation under a limit, and reports if it took much longer.
func timed(tb testing.TB, limit time.Duration, operation func(ctx context.Context)) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), limit)
	defer cancel()
	began := time.Now()
	operation(ctx)
	if took := time.Since(began); took > limit+late {
		tb.Errorf("an operation that was granted %v took %v", limit, took)
	}
}

// home checks that tickets live in this process.
func (r *replica) home(k Key) {
	r.t.Helper()
	tk := ticket(77, 10)
	r.put(k, tk)
	if branches := r.look(k); len(branches) == 0 || branches[0].ID != tk.ID {
		r.t.Errorf("peek: got %d branches, want the ticket put here first", len(branches))
	}
	r.take(k, tk)
	r.take(k, tk, Unavailable) // Redis may have it, as far as is known
}

func TestRedis_DownAtStart_TicketsStayHomeUntilItComes(t *testing.T) {
	t.Parallel()
	s, c := redistest.Start(t), &clock{}
	r, other := openAt(t, s, Config{Now: c.now}), openAt(t, s)
	kept, shared := ticket(1, 10), ticket(2, 10)
	s.Kill()
	r.down()
	r.home(k1)
	r.look(k1, Unavailable)
	r.put(k2, kept)
	if r.Len() != 1 || r.State() != convcache.RemoteDown {
		t.Errorf("%d conversations in state %v, want 1 in %v", r.Len(), r.State(), convcache.RemoteDown)
	}
	s.Restart()
	runBeside(t, r)
	eventually(t, "a store that shares again", func() bool { return r.State() == convcache.RemoteUp && r.Shares() })
	r.put(k3, shared)
	other.take(k3, shared)
	other.take(k2, kept, Consumed)
	r.take(k2, kept)
	r.take(k2, kept, Consumed)
	s.Kill()
	r.put(k1, ticket(3, 10))
	c.advance(redisTTL)
	if got := r.EvictStale(); got != 1 {
		t.Errorf("evicted: got %d conversations, want 1", got)
	}
}

func TestRedis_PoolExhausted_CostsOnlyWhatIsGranted(t *testing.T) {
	s := redistest.Start(t)
	r := openAt(t, s, Config{Timeout: 5 * time.Millisecond})
	r.check()
	s.Stop()
	start := make(chan struct{})
	var wg sync.WaitGroup
	var home atomic.Int64
	for i := range 300 {
		wg.Go(func() {
			<-start
			timed(t, granted, func(ctx context.Context) {
				var got Outcome
				switch i % 3 {
				case 0:
					_, got = r.Peek(ctx, []Key{key(i)})
				case 1:
					_, got = r.Take(ctx, key(i), ticket(i, 1).ID)
				case 2:
					_, got = r.Put(ctx, key(i), ticket(i, 10), redisTTL)
					if got == Stored {
						home.Add(1) // never sent
						return
					}
					if got == convcache.NotStored { // its time was over before a busy machine had begun it
						return
					}
				}
				if got != Unavailable {
					t.Errorf("operation %d: got %v, want a miss", i, got)
				}
			})
		})
	}
	close(start)
	wg.Wait()
	if got := r.Len(); got != int(home.Load()) {
		t.Errorf("conversations in this process: got %d, want the %d that were stored", got, home.Load())
	}
	timed(t, 4*time.Second, func(context.Context) { r.down() })
}

// No answer is large where none comes.
func TestRedis_Stopped_LookUpsOpenTheBreaker(t *testing.T) {
	s := redistest.Start(t)
	r := openAt(t, s)
	r.check()
	s.Stop()
	for range 5 {
		timed(t, granted, func(ctx context.Context) {
			if _, got := r.Peek(ctx, []Key{k1}); got != Unavailable {
				t.Errorf("a look-up that gets stuck: got %v, want %v", got, Unavailable)
			}
		})
	}
	if r.Shares() {
		t.Error("five look-ups failed, and more are sent")
	}
}

// A Cluster or a Sentinel none of whose addresses answers.
func TestRedis_NoAddressAnswers_TicketsStayHome(t *testing.T) {
	s, a := redistest.Start(t), ticket(1, 10)
	s.Kill()
	for _, cfg := range []Config{{Topology: redisstore.Cluster}, {Topology: redisstore.Sentinel, Master: "m"}} {
		r := openAt(t, s, cfg)
		r.look(k1, Unavailable)
		r.take(k1, a, Unavailable)
		r.put(k1, a)
		r.down()
		r.home(k2)
		r.take(k1, a)
	}
}

func TestRedis_OpenBreakerSendsNothing(t *testing.T) {
	s := redistest.Start(t)
	r, there, here := openAt(t, s), ticket(1, 10), ticket(2, 10)
	r.check()
	r.put(k1, there)
	r.OpenBreaker()
	quiet(t, s, func() {
		r.look(k1, Unavailable)
		r.take(k1, there, Unavailable)
		r.put(k1, here)
		r.shows(k1, here)
	})
	r.CloseBreaker()
	r.shows(k1, here, there)
	r.take(k1, there)
}
