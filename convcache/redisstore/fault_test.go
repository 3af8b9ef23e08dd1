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
func timed(t *testing.T, limit time.Duration, operation func(ctx context.Context)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	began := time.Now()
	operation(ctx)
	if took := time.Since(began); took > limit+late {
		t.Errorf("an operation that was granted %v took %v", limit, took)
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
	st := newStage(t, Config{})
	st.play("kill; down; home 1; look 1 unavailable; put kept 2; len 1")
	if got := st.stores["r"].State(); got != convcache.RemoteDown {
		t.Errorf("state: got %v, want %v", got, convcache.RemoteDown)
	}
	st.play("restart; run; put shared 3; o take shared; o take kept consumed; take kept; take kept consumed; kill; put expiring 4; wait")
	if got := st.stores["r"].EvictStale(); got != 1 {
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

// A Cluster or a Sentinel none of whose addresses answers.
func TestRedis_NoAddressAnswers_TicketsStayHome(t *testing.T) {
	st := newStage(t, Config{})
	st.play("kill")
	for _, cfg := range []Config{{Topology: redisstore.Cluster}, {Topology: redisstore.Sentinel, Master: "m"}} {
		st.stores["r"] = openAt(t, st.server, cfg)
		st.play("look 1 unavailable; take never unavailable; put a; len 1; down; home 2; take a")
	}
}

func TestRedis_OpenBreakerSendsNothing(t *testing.T) {
	st := newStage(t, Config{})
	st.play("check; put there; open")
	st.quiet("look unavailable; take there unavailable; put here; look here; len 1")
	st.play("close; look here there; take there")
}
