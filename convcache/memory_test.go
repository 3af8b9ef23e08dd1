package convcache_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"carryover/convcache"
	"carryover/convcache/convcachetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a clock that moves when told.
type clock struct {
	nanos atomic.Int64
}

func (c *clock) now() time.Time { return time.Unix(1_800_000_000, c.nanos.Load()) }

func (c *clock) advance(d time.Duration) { c.nanos.Add(int64(d)) }

// reading is what a Reading counts.
const reading = 448

// overhead is what a ticket counts beside its params, its chain's blocks and its names.
const overhead = 640

func newMemory(entries int, size int64) (*convcache.Memory, *clock) {
	c := &clock{}
	return convcache.NewMemory(convcache.MemoryConfig{MaxEntries: entries, MaxBytes: size, Now: c.now}), c
}

// key returns the key of conversation n.
func key(n int) convcache.Key { return convcache.Key{byte(n), byte(n >> 8), byte(n >> 16)} }

// ticket returns a ticket with params of the given size and tokens of its own.
func ticket(n, size int) convcache.Ticket {
	return convcache.Ticket{
		Branch: convcache.Branch{ID: convcache.NewTicketID(), Chain: convcache.Chain{Tokens: 1 + n, Whole: uint64(n)}},
		Params: bytes.Repeat([]byte("x"), size),
	}
}

// mustPut stores a ticket and returns what it displaced.
func mustPut(t *testing.T, m *convcache.Memory, k convcache.Key, tk convcache.Ticket, ttl time.Duration) []convcache.Ticket {
	t.Helper()
	displaced, outcome := m.Put(t.Context(), k, tk, ttl)
	if outcome != convcache.Stored {
		t.Fatalf("put: got %v, want %v", outcome, convcache.Stored)
	}
	return displaced
}

// wantPeek looks a conversation up and compares the outcome.
func wantPeek(t *testing.T, m *convcache.Memory, k convcache.Key, want convcache.Outcome) {
	t.Helper()
	if _, got := m.Peek(t.Context(), []convcache.Key{k}); got != want {
		t.Errorf("peek of %s: got %v, want %v", k.Short(), got, want)
	}
}

// ids returns the ids of tickets, for comparison.
func ids(tickets ...convcache.Ticket) []convcache.TicketID {
	var out []convcache.TicketID
	for _, tk := range tickets {
		out = append(out, tk.ID)
	}
	return out
}

func TestMemory_KeepsTheContract(t *testing.T) {
	convcachetest.Run(t, func(*testing.T) convcachetest.Harness {
		m, c := newMemory(0, 0)
		return convcachetest.Harness{Store: m, Now: c.now, Advance: c.advance}
	})
}

func TestMemory_KeepsTheContractByTheMonotonicClock(t *testing.T) {
	for _, check := range convcachetest.Checks() {
		synctest.Test(t, func(t *testing.T) {
			m := convcache.NewMemory(convcache.MemoryConfig{})
			wait := func(d time.Duration) { <-time.After(d) }
			if err := check.Run(t.Context(), convcachetest.Harness{Store: m, Now: time.Now, Advance: wait}); err != nil {
				t.Errorf("%s: %v", check.Name, err)
			}
		})
	}
}

func TestMemory_ForgetsLeastRecentlyUsedConversationBeyondEntries(t *testing.T) {
	m, _ := newMemory(3, 0)
	a1, a2, b := ticket(1, 1), ticket(2, 1), ticket(3, 1)
	mustPut(t, m, key(1), a1, time.Hour)
	mustPut(t, m, key(2), b, time.Hour)
	mustPut(t, m, key(1), a2, time.Hour)
	wantPeek(t, m, key(2), convcache.Found) // now conversation 1 is the older one

	displaced := mustPut(t, m, key(3), ticket(4, 1), time.Hour)

	if got, want := ids(displaced...), ids(a2, a1); !slices.Equal(got, want) {
		t.Errorf("displaced: got %v, want the whole conversation %v", got, want)
	}
	wantPeek(t, m, key(1), convcache.Empty)
	wantPeek(t, m, key(2), convcache.Found)
	wantPeek(t, m, key(3), convcache.Found)
	if got := m.Len(); got != 2 {
		t.Errorf("len: got %d, want 2", got)
	}
}

// What one account puts in takes the place of nothing of another that has less.
func TestMemory_ForgetsOfTheAccountThatHasMost(t *testing.T) {
	for _, m := range []*convcache.Memory{first(newMemory(4, 1<<20)), first(newMemory(1<<20, 4*(overhead+100+1)))} {
		put := func(account string, n int) (displaced []convcache.Ticket) {
			of := ticket(n, 100)
			of.Account = account
			return mustPut(t, m, key(n), of, time.Hour)
		}
		put("q", 0)
		for n := 1; n < 20; n++ {
			for _, gone := range put("i", n) {
				if gone.Account == "q" {
					t.Errorf("put %d has displaced that of the quiet", n)
				}
			}
		}
		put("q", 20)
		if gone := put("q", 21); len(gone) != 1 || gone[0].Account != "q" || gone[0].Chain.Whole != 0 {
			t.Errorf("%v had to make room for one of three", gone)
		}
	}
}

func first(m *convcache.Memory, _ *clock) *convcache.Memory { return m }

func TestMemory_ForgetsBeyondBytes(t *testing.T) {
	m, _ := newMemory(0, 2*(1000+overhead))
	evicted := 0
	for n := range 3 {
		evicted += len(mustPut(t, m, key(n), ticket(n, 1000), time.Hour))
	}
	wantPeek(t, m, key(0), convcache.Empty)
	wantPeek(t, m, key(1), convcache.Found)
	wantPeek(t, m, key(2), convcache.Found)

	big := ticket(9, 2*(1000+overhead)-overhead)
	evicted += len(mustPut(t, m, key(9), big, time.Hour))
	if m.Len() != 1 || evicted != 3 {
		t.Errorf("after a ticket as large as the store: len, evicted: got %d, %d, want 1, 3", m.Len(), evicted)
	}
	big.Params = append(big.Params, 'x')
	if displaced, outcome := m.Put(t.Context(), key(10), big, time.Hour); outcome != convcache.Refused || displaced != nil {
		t.Errorf("put of a ticket larger than the store: got %v and %d displaced, want %v and 0", outcome, len(displaced), convcache.Refused)
	}
	wantPeek(t, m, key(9), convcache.Found)
}

func TestMemory_CountsWhatWasReadOfParams(t *testing.T) {
	m, _ := newMemory(0, 2*(1000+overhead)+reading)
	for n := range 2 {
		tk := ticket(n, 1000)
		tk.Reading = t
		mustPut(t, m, key(n), tk, time.Hour)
	}
	wantPeek(t, m, key(0), convcache.Empty)
	wantPeek(t, m, key(1), convcache.Found)
	tk := ticket(2, 1000)
	mustPut(t, m, key(2), tk, time.Hour)
	wantPeek(t, m, key(1), convcache.Found)
	if taken, _ := m.Take(t.Context(), key(2), tk.ID); taken.Reading != nil {
		t.Errorf("got a ticket with what was read of %v, want none", taken.Reading)
	}
}

func TestMemory_GivesBytesBack(t *testing.T) {
	m, c := newMemory(0, 1000+overhead)
	evicted := 0
	for n := range 100 {
		tk := ticket(n, 1000)
		evicted += len(mustPut(t, m, key(n), tk, time.Minute))
		switch n % 3 {
		case 0:
			m.Take(t.Context(), key(n), tk.ID)
		case 1:
			c.advance(time.Minute)
			m.EvictStale()
		default:
			evicted += len(mustPut(t, m, key(n), tk, time.Minute))
			m.Take(t.Context(), key(n), tk.ID)
		}
	}
	if m.Len() != 0 || evicted != 0 {
		t.Errorf("len, evicted: got %d, %d, want 0, 0: every ticket fits once the one before it is gone", m.Len(), evicted)
	}
}

func TestMemory_DropsOldestBranchWhenOneConversationFillsIt(t *testing.T) {
	m, _ := newMemory(2, 0)
	a, b, c := ticket(1, 1), ticket(2, 1), ticket(3, 1)
	mustPut(t, m, key(1), a, time.Hour)
	mustPut(t, m, key(1), b, time.Hour)
	if got, want := ids(mustPut(t, m, key(1), c, time.Hour)...), ids(a); !slices.Equal(got, want) {
		t.Errorf("displaced: got %v, want %v", got, want)
	}
	if branches, _ := m.Peek(t.Context(), []convcache.Key{key(1)}); m.Len() != 1 || len(branches) != 2 {
		t.Errorf("got %d conversations and %d branches, want 1 and 2", m.Len(), len(branches))
	}
}

func TestMemory_ForgetsExpiredBeforeUsable(t *testing.T) {
	m, c := newMemory(2, 0)
	old, stale := ticket(1, 1), ticket(2, 1)
	mustPut(t, m, key(1), old, time.Hour)
	mustPut(t, m, key(2), stale, time.Minute)
	c.advance(time.Minute)
	if displaced := mustPut(t, m, key(3), ticket(3, 1), time.Hour); len(displaced) != 0 {
		t.Errorf("displaced: got %v, want none: the expired ticket makes room", ids(displaced...))
	}
	wantPeek(t, m, key(1), convcache.Found)
	wantPeek(t, m, key(2), convcache.Empty)
}

func TestMemory_EvictStaleCountsConversations(t *testing.T) {
	m, c := newMemory(0, 0)
	const conversations = 700 // more than one hold of the lock removes
	for n := range conversations {
		mustPut(t, m, key(n), ticket(1, 1), time.Minute)
		mustPut(t, m, key(n), ticket(2, 1), time.Minute)
	}
	half := ticket(3, 1)
	mustPut(t, m, key(0), half, time.Hour)
	if got := m.EvictStale(); got != 0 {
		t.Errorf("before the deadline: got %d, want 0", got)
	}
	c.advance(time.Minute)
	wantPeek(t, m, key(1), convcache.Expired)
	if got, want := m.EvictStale(), conversations-1; got != want {
		t.Errorf("evict stale: got %d, want %d", got, want)
	}
	wantPeek(t, m, key(1), convcache.Empty)
	wantPeek(t, m, key(0), convcache.Found)
	if got := m.Len(); got != 1 {
		t.Errorf("len: got %d, want 1", got)
	}
	c.advance(time.Hour)
	if _, outcome := m.Take(t.Context(), key(0), half.ID); outcome != convcache.Expired {
		t.Errorf("late take: got %v, want %v", outcome, convcache.Expired)
	}
	if length, evicted := m.Len(), m.EvictStale(); length != 0 || evicted != 0 {
		t.Errorf("after a late take: len, stale: got %d, %d, want 0, 0", length, evicted)
	}
}

func TestMemory_RunEvictsUntilItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := convcache.NewMemory(convcache.MemoryConfig{})
		mustPut(t, m, key(1), ticket(1, 1), 90*time.Second)
		cause := errors.New("shutting down")
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()

		<-time.After(time.Minute + time.Second)
		synctest.Wait()
		if m.Len() != 1 {
			t.Errorf("len before the deadline: got %d, want 1", m.Len())
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if m.Len() != 0 {
			t.Errorf("len after the deadline: got %d, want 0", m.Len())
		}
		cancel(cause)
		if err := <-ended; !errors.Is(err, cause) {
			t.Errorf("run: got %v, want the cause %v", err, cause)
		}
	})
}

// TestMemory_NeverHandsOutATicketTwice lets tickets leave by every door at once.
func TestMemory_NeverHandsOutATicketTwice(t *testing.T) {
	m, c := newMemory(40, 0)
	var mu sync.Mutex // guards left
	left := map[convcache.TicketID]int{}
	leave := func(tickets ...convcache.Ticket) {
		mu.Lock()
		defer mu.Unlock()
		for _, tk := range tickets {
			left[tk.ID]++
		}
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for n := range 500 {
				k := key((g*7 + n*13) % 30)
				displaced, _ := m.Put(t.Context(), k, ticket(n%6, 10), time.Duration(1+n%9)*time.Second)
				leave(displaced...)
				branches, _ := m.Peek(t.Context(), []convcache.Key{k})
				for _, b := range branches {
					if n%3 == 0 {
						if tk, outcome := m.Take(t.Context(), k, b.ID); outcome == convcache.Taken {
							leave(tk)
						}
					}
				}
				if n%50 == 0 {
					c.advance(time.Second)
					m.EvictStale()
				}
			}
		})
	}
	wg.Wait()
	for id, n := range left {
		if n != 1 {
			t.Errorf("ticket %s left the store %d times, want 1", id, n)
		}
	}
	if len(left) < 1000 {
		t.Errorf("tickets that left: got %d, want the test to move at least 1000", len(left))
	}
}

func TestOutcome_IsNamed(t *testing.T) {
	want := []string{"unavailable", "found", "taken", "stored", "empty", "expired", "consumed", "fenced", "refused", "superseded", "not_stored", "unknown"}
	for i, name := range want {
		if got := convcache.Outcome(i).String(); got != name {
			t.Errorf("outcome %d: got %q, want %q", i, got, name)
		}
	}
}

// BenchmarkMemory_Sweep reports what one EvictStale of 128 tickets among 100,000 takes, which is as
// long as it ever holds the lock.
func BenchmarkMemory_Sweep(b *testing.B) {
	m, c := newMemory(200_000, 1<<40)
	for n := range 100_000 {
		m.Put(b.Context(), key(n), ticket(n, 0), 1000*time.Hour)
	}
	for b.Loop() {
		b.StopTimer()
		for n := range 128 {
			m.Put(b.Context(), key(n+100_000), ticket(n, 0), time.Millisecond)
		}
		c.advance(time.Millisecond)
		b.StartTimer()
		if got := m.EvictStale(); got != 128 {
			b.Fatalf("evict stale: got %d, want 128", got)
		}
	}
}

// BenchmarkMemory_Footprint reports the heap that a ticket takes beside its params, chain and names.
func BenchmarkMemory_Footprint(b *testing.B) {
	for b.Loop() {
		const tickets = 100_000
		before := heapInUse()
		m := convcache.NewMemory(convcache.MemoryConfig{MaxEntries: tickets, MaxBytes: 1 << 40})
		for n := range tickets {
			m.Put(b.Context(), key(n), ticket(n, 0), time.Hour)
		}
		b.ReportMetric(float64(heapInUse()-before)/tickets, "B/ticket")
		if m.Len() != tickets {
			b.Fatalf("len: got %d, want %d", m.Len(), tickets)
		}
	}
}

// heapInUse returns the live bytes on the heap.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
