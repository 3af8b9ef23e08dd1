//go:build unix

package proof

import (
	"runtime"
	"testing"
)

// The collector lets the heap grow to twice what is live. What a room lends is none of it.
func TestArena_IsNoPartOfTheHeap(t *testing.T) {
	heap := func() int64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	ids := manyIDs(1000)
	before := heap()
	arena := NewArena(64 << 20)
	var all []*Retained
	for range 10_000 {
		all = append(all, retain(arena, ids))
	}
	if used, _ := arena.Use(); used < 16<<20 {
		t.Fatalf("%d bytes are in use", used)
	}
	if grown := heap() - before; grown > 2<<20 {
		t.Errorf("the heap grows by %d bytes for %d streams", grown, len(all))
	}
	for _, r := range all {
		r.Free()
	}
	wantUse(t, arena, 0)
}
