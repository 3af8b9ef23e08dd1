package app

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

func TestGCPercent(t *testing.T) {
	const mb = 1 << 20
	for _, tc := range []struct {
		live, roots, floor uint64
		want               int
	}{
		{4 * mb, 0, 64 * mb, 1500},
		{4 * mb, 4 * mb, 64 * mb, 750},
		{32 * mb, 0, 64 * mb, 100},
		{40 * mb, 0, 64 * mb, 100}, // beyond half of the floor it is Go's own pace
		{64 * mb, 0, 64 * mb, 100},
		{500 * mb, 9 * mb, 64 * mb, 100},
		{1 * mb, 0, 64 * mb, 1600}, // the least goal is the floor then
		{0, 0, 64 * mb, 1600},      // before the first collection nothing is known to live
	} {
		if got := gcPercent(tc.live, tc.roots, tc.floor); got != tc.want {
			t.Errorf("gcPercent(%d, %d, %d) = %d, want %d", tc.live, tc.roots, tc.floor, got, tc.want)
		}
	}
}

func TestHeapFloor(t *testing.T) {
	for _, tc := range []struct {
		name  string
		own   int64
		files map[string]string
		want  uint64
	}{
		{"no limit", math.MaxInt64, nil, mostHeapFloor},
		{"Go's", 128 << 20, nil, 16 << 20},
		{"the container's", math.MaxInt64, map[string]string{"/sys/fs/cgroup/memory.max": "268435456\n"}, 32 << 20},
		{"of cgroup v1", math.MaxInt64, map[string]string{"/sys/fs/cgroup/memory/memory.limit_in_bytes": "134217728\n"}, 16 << 20},
		{"the least", 64 << 20, map[string]string{"/sys/fs/cgroup/memory.max": "268435456\n"}, 8 << 20},
		{"a container without", math.MaxInt64, map[string]string{"/sys/fs/cgroup/memory.max": "max\n"}, mostHeapFloor},
		{"a large one", 32 << 30, nil, mostHeapFloor},
	} {
		read := func(name string) []byte { return []byte(tc.files[name]) }
		if got := heapFloor(memoryLimit(tc.own, read)); got != tc.want {
			t.Errorf("%s: floor %d, want %d", tc.name, got, tc.want)
		}
	}
}

// The goal of the next collection is the floor, and what is set is found anew after a collection.
func TestHeapPacer(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	runtime.GC()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/goal:bytes"}}
	metrics.Read(live)
	p := NewHeapPacer()
	p.floor = 4 * max(live[0].Value.Uint64(), 4<<20)
	p.adjust()
	metrics.Read(live)
	if goal := live[1].Value.Uint64(); goal < p.floor*9/10 || goal > p.floor*12/10 {
		t.Errorf("the goal is %d with a floor of %d and %d live", goal, p.floor, live[0].Value.Uint64())
	}
	p.floor = 0
	p.adjust()
	if got := debug.SetGCPercent(100); got != 100 {
		t.Errorf("GOGC is %d without a floor, want 100", got)
	}
}

func TestHeapPacer_LeavesThePaceToTheOperator(t *testing.T) {
	before := debug.SetGCPercent(77)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	t.Setenv("GOGC", "77")
	NewHeapPacer().Pace()
	if got := debug.SetGCPercent(77); got != 77 {
		t.Errorf("GOGC is %d, want 77", got)
	}
}
