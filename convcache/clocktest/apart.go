// Package clocktest makes moments whose two readings, monotonic and wall, have come
// apart, which nothing in package time does. Tests import it, and nothing else.
package clocktest

import (
	"testing"
	"time"
	"unsafe"
)

// Apart returns a moment as a clock shows it whose wall reading alone has moved on by
// d, as on a machine that was suspended for so long, or back, as one that was set. at has
// both readings.
//
// It reaches into the layout of time.Time (wall, ext, loc; ext is the monotonic reading,
// where there is one), and fails tb if that is another.
func Apart(tb testing.TB, at time.Time, d time.Duration) time.Time {
	tb.Helper()
	moved := at.Add(d)
	(*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&moved)).ext -= int64(d)
	if moved.Sub(at) != 0 || moved.Round(0).Sub(at.Round(0)) != d {
		tb.Fatalf("time.Time has another layout: the clocks moved by %v and %v, want 0 and %v", moved.Sub(at), moved.Round(0).Sub(at.Round(0)), d)
	}
	return moved
}
