package convcache

import (
	"bytes"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
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

func newMemory(entries int, size int64) (*Memory, *clock) {
	c := &clock{}
	return NewMemory(MemoryConfig{MaxEntries: entries, MaxBytes: size, Now: c.now}), c
}

// key returns the key of conversation n.
func key(n int) Key { return Key{byte(n), byte(n >> 8), byte(n >> 16)} }

// ticket returns a ticket with params of the given size and tokens of its own.
func ticket(n, size int) Ticket {
	return Ticket{
		Branch: Branch{ID: NewTicketID(), Chain: Chain{Tokens: 1 + n, Whole: uint64(n)}},
		Params: bytes.Repeat([]byte("x"), size),
	}
}

// mustPut stores a ticket and returns what it displaced.
func mustPut(t *testing.T, m *Memory, k Key, tk Ticket, ttl time.Duration) []Ticket {
	t.Helper()
	displaced, outcome := m.Put(t.Context(), k, tk, ttl)
	if outcome != Stored {
		t.Fatalf("put: got %v, want %v", outcome, Stored)
	}
	return displaced
}

// wantPeek looks a conversation up and compares the outcome.
func wantPeek(t *testing.T, m *Memory, k Key, want Outcome) {
	t.Helper()
	if _, got := m.Peek(t.Context(), []Key{k}); got != want {
		t.Errorf("peek of %s: got %v, want %v", k.Short(), got, want)
	}
}

// What one account puts in takes the place of nothing of another that has less.
func TestMemory_ForgetsOfTheAccountThatHasMost(t *testing.T) {
	for _, cfg := range []MemoryConfig{{MaxEntries: 4, MaxBytes: 1 << 20}, {MaxEntries: 1 << 20, MaxBytes: 4 * (overhead + 100 + 1)}} {
		m := NewMemory(cfg)
		put := func(account string, n int) (displaced []Ticket) {
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

// A store that is as large as a ticket takes it, and one with a byte less refuses it.
func TestMemory_CountsBytes(t *testing.T) {
	named := Branch{Decode: Holder{Instance: "12345", Incarnation: "1234567"}, Outline: make([]uint32, 9)}
	for bytes, tk := range map[int64]Ticket{
		1000:             {Params: make([]byte, 1000)},
		reading:          {Reading: t},
		8 * 100:          {Branch: Branch{Chain: Chain{Blocks: make([]uint64, 100)}}},
		4*9 + 5 + 7 + 11: {Branch: named, EngineID: "12345678901"},
		7 + 5:            noteFor(Ticket{Branch: Branch{Decode: Holder{Instance: "a name that is not the note's"}}, Params: []byte("nor these")}, &clock{}),
	} {
		tk.ID = NewTicketID()
		m, _ := newMemory(0, overhead+bytes)
		mustPut(t, m, key(1), tk, time.Hour)
		small, _ := newMemory(0, overhead+bytes-1)
		if displaced, outcome := small.Put(t.Context(), key(1), tk, time.Hour); outcome != Refused || displaced != nil {
			t.Errorf("%+v put into one byte less: got %v and %d displaced, want %v and 0", tk, outcome, len(displaced), Refused)
		}
	}
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
	wantPeek(t, m, key(1), Expired)
	if got, want := m.EvictStale(), conversations-1; got != want {
		t.Errorf("evict stale: got %d, want %d", got, want)
	}
	wantPeek(t, m, key(1), Empty)
	wantPeek(t, m, key(0), Found)
	if got := m.Len(); got != 1 {
		t.Errorf("len: got %d, want 1", got)
	}
	c.advance(time.Hour)
	if _, outcome := m.Take(t.Context(), key(0), half.ID); outcome != Expired {
		t.Errorf("late take: got %v, want %v", outcome, Expired)
	}
	if length, evicted := m.Len(), m.EvictStale(); length != 0 || evicted != 0 || m.bytes != 0 {
		t.Errorf("after a late take: len, stale, bytes: got %d, %d, %d, want none", length, evicted, m.bytes)
	}
}

func TestMemory_RunEvictsUntilItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(MemoryConfig{})
		mustPut(t, m, key(1), ticket(1, 1), 90*time.Second)
		defer running(t, m)()
		for want := range 2 {
			<-time.After(time.Minute + time.Second)
			synctest.Wait()
			if got := m.Len(); got != 1-want {
				t.Errorf("after %d minutes: len: got %d, want %d", 1+want, got, 1-want)
			}
		}
	})
}

// TestMemory_NeverHandsOutATicketTwice lets tickets leave by every door at once.
func TestMemory_NeverHandsOutATicketTwice(t *testing.T) {
	m, c := newMemory(40, 0)
	var mu sync.Mutex // guards left
	left := map[TicketID]int{}
	leave := func(tickets ...Ticket) {
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
				branches, _ := m.Peek(t.Context(), []Key{k})
				for _, b := range branches {
					if n%3 == 0 {
						if tk, outcome := m.Take(t.Context(), k, b.ID); outcome == Taken {
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

// Metrics and answers name outcomes.
func TestOutcome_IsNamed(t *testing.T) {
	want := "unavailable found taken stored empty expired consumed fenced refused superseded not_stored unknown"
	for i, name := range strings.Fields(want) {
		if got := Outcome(i).String(); got != name {
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
		m := NewMemory(MemoryConfig{MaxEntries: tickets, MaxBytes: 1 << 40})
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
