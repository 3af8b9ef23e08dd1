package redisstore_test

import (
	"context"
	"sync"
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

// wantHome checks that tickets live in this process.
func wantHome(t *testing.T, r *replica, k Key) {
	t.Helper()
	tk := ticket(77, 10)
	wantPut(t, r, k, tk, Stored)
	branches := wantLook(t, r, k, Found)
	if len(branches) == 0 || branches[0].ID != tk.ID {
		t.Errorf("peek: got %d branches, want the ticket put here first", len(branches))
	}
	wantTake(t, r, k, tk.ID, Taken)
	wantTake(t, r, k, tk.ID, Unavailable) // Redis may have it, as far as is known
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

func TestRedis_Stopped_CostsOnlyWhatIsGranted(t *testing.T) {
	s := redistest.Start(t)
	f := redistest.Forward(t, s.Addr())
	r := openAt(t, f.Addr())
	witness := openAt(t, s.Addr())
	mustCheck(t, r)
	seen := ticket(1, 10)
	wantPut(t, witness, key(1), seen, Stored)
	s.Stop()
	lost := ticket(2, 10)
	for n := range 5 {
		timed(t, granted, func(ctx context.Context) {
			var got Outcome
			switch n % 3 {
			case 0:
				_, got = r.Peek(ctx, []Key{key(1)})
			case 1:
				_, got = r.Put(ctx, key(1), lost, redisTTL)
			case 2:
				_, got = r.Take(ctx, key(1), seen.ID)
			}
			if got != Unavailable {
				t.Errorf("operation %d: got %v, want %v", n, got, Unavailable)
			}
			lost = ticket(2, 10)
		})
	}
	if r.Shares() {
		t.Error("five operations failed, and more are sent")
	}
	wantTake(t, r, key(1), lost.ID, Unavailable) // no put that may have arrived is kept here too
	if got := r.Len(); got != 0 {
		t.Errorf("conversations: got %d, want 0", got)
	}

	timed(t, 4*time.Second, func(context.Context) { wantDown(t, r) })

	// Nothing touches the network now: what reaches the server after it goes on is what was sent before.
	f.Cut()
	f.Target("127.0.0.1:1")
	for range 20 {
		wantHome(t, r, key(2))
	}
	s.Continue()
	f.Target(s.Addr())
	mustCheck(t, r)
	wantPut(t, r, key(3), ticket(3, 10), Stored)
	if got := len(wantLook(t, witness, key(3), Found)); got != 1 {
		t.Errorf("another replica sees %d branches, want 1", got)
	}
}

// arrivesLate puts a ticket to a server that stands, until one put has arrived after its time. It does not arrive if the
// machine was too busy to send it in time.
func arrivesLate(t *testing.T, s *redistest.Server, r *replica, c *clock, tk Ticket) bool {
	t.Helper()
	for range 10 {
		greet(t, clientOf(t, r, key(1)))
		before := calls(s, "evalsha")
		s.Stop()
		timed(t, 4*granted, func(ctx context.Context) { // enough for a busy machine to have sent it
			if _, got := r.Put(ctx, key(1), tk, redisTTL); got != Unavailable {
				t.Errorf("put: got %v, want %v", got, Unavailable)
			}
		})
		c.advance(redisTTL)
		s.Continue()
		for range 100 {
			if calls(s, "evalsha") > before {
				return true
			}
		}
		mustCheck(t, r) // and closes the breaker
	}
	return false
}

func TestRedis_PutThatArrivesLateIsUsedOnce(t *testing.T) {
	s := redistest.Start(t)
	c := &clock{}
	r := openOn(t, s, Config{Now: c.now})
	other := openOn(t, s, Config{Now: c.now})
	mustCheck(t, r)
	mustCheck(t, other)
	wantPut(t, other, key(9), ticket(9, 10), Stored) // both scripts are known
	tk := ticket(1, 10)
	if !arrivesLate(t, s, r, c, tk) {
		t.Fatal("ten puts to a server that stood have not arrived when it went on")
	}
	if got := s.CLI("HSTRLEN", other.KeyName(key(1)), "0b"); got == "0" {
		t.Fatal("the late put left nothing")
	}
	wantLook(t, other, key(1), Expired)
	if got := wantTake(t, other, key(1), tk.ID, Expired); got.Params != nil {
		t.Errorf("take: got params %q, want none", got.Params)
	}
	wantTake(t, other, key(1), tk.ID, Consumed)
}

func TestRedis_PoolExhausted_CostsOnlyWhatIsGranted(t *testing.T) {
	s := redistest.Start(t)
	r := openOn(t, s, Config{Timeout: 5 * time.Millisecond})
	mustCheck(t, r)
	s.Stop()
	const parallel = 300
	var outcomes [parallel]Outcome
	var took [parallel]time.Duration
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range parallel {
		wg.Go(func() {
			<-start
			ctx, cancel := context.WithTimeout(t.Context(), granted)
			defer cancel()
			began := time.Now()
			switch i % 3 {
			case 0:
				_, outcomes[i] = r.Peek(ctx, []Key{key(i)})
			case 1:
				_, outcomes[i] = r.Take(ctx, key(i), ticket(i, 1).ID)
			case 2:
				_, outcomes[i] = r.Put(ctx, key(i), ticket(i, 10), redisTTL)
			}
			took[i] = time.Since(began)
		})
	}
	close(start)
	wg.Wait()
	home := 0
	for i, outcome := range outcomes {
		switch {
		case outcome == Stored && i%3 == 2:
			home++ // never sent
		case outcome == convcache.NotStored && i%3 == 2: // its time was over before a busy machine had begun it
		case outcome != Unavailable:
			t.Errorf("operation %d: got %v, want a miss", i, outcome)
		}
		if took[i] > granted+late {
			t.Errorf("operation %d took %v", i, took[i])
		}
	}
	if got := r.Len(); got != home {
		t.Errorf("conversations in this process: got %d, want the %d that were stored", got, home)
	}
}

// A Cluster or a Sentinel none of whose addresses answers.
func TestRedis_NoAddressAnswers_TicketsStayHome(t *testing.T) {
	st := newStage(t, Config{})
	st.play("kill")
	for _, cfg := range []Config{{Topology: redisstore.Cluster}, {Topology: redisstore.Sentinel, Master: "m"}} {
		st.stores["r"] = openOn(t, st.server, cfg)
		st.play("look 1 unavailable; take never unavailable; put a; len 1; down; home 2; take a")
	}
}

func TestRedis_OpenBreakerSendsNothing(t *testing.T) {
	st := newStage(t, Config{})
	st.play("check; put there; open")
	st.quiet("look unavailable; take there unavailable; put here; look here; len 1")
	st.play("close; look here there; take there")
}
