package convcache_test

import (
	"runtime"
	"testing"
	"time"

	"carryover/convcache"
)

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
