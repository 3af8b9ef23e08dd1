package app

import (
	"runtime/debug"
	"testing"
)

func TestGCPercent(t *testing.T) {
	const mb = 1 << 20
	for _, tc := range []struct {
		live, stacks uint64
		want         int
	}{
		{8 * mb, 0, 1500},
		{8 * mb, 8 * mb, 750},
		{64 * mb, 0, 100},
		{90 * mb, 0, 55}, // near the floor it is the pace of large heaps
		{128 * mb, 0, 55},
		{500 * mb, 9 * mb, 55},
		{1 * mb, 0, 3200}, // the least goal is the floor then
		{0, 0, 3200},      // before the first collection nothing is known to live
	} {
		if got := gcPercent(tc.live, tc.stacks); got != tc.want {
			t.Errorf("gcPercent(%d, %d) = %d, want %d", tc.live, tc.stacks, got, tc.want)
		}
	}
}

func TestPaceCollector_LeavesThePaceToTheOperator(t *testing.T) {
	before := debug.SetGCPercent(77)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	t.Setenv("GOGC", "77")
	PaceCollector()
	if got := debug.SetGCPercent(77); got != 77 {
		t.Errorf("GOGC is %d, want 77", got)
	}
}
