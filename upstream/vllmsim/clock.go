package vllmsim

import (
	"context"
	"sync/atomic"
	"time"
)

// clockOrigin keeps readings well above zero, like perf_counter on a machine that has been up for a while. So an expiry time of
// 1.0 is always in the past.
const clockOrigin = time.Hour

// clock is the engine's perf_counter: monotonic, scaled, unrelated to wall time and to the clocks of other instances.
type clock struct {
	start    time.Time
	scale    float64
	advanced atomic.Int64 // nanoseconds added by Instance.Advance
}

func newClock(scale float64) *clock { return &clock{start: time.Now(), scale: scale} }

func (c *clock) now() time.Duration {
	elapsed := time.Duration(float64(time.Since(c.start)) * c.scale)
	return clockOrigin + elapsed + time.Duration(c.advanced.Load())
}

func (c *clock) advance(d time.Duration) { c.advanced.Add(int64(d)) }

// real converts engine time to wall time.
func (c *clock) real(d time.Duration) time.Duration { return time.Duration(float64(d) / c.scale) }

// scaled converts wall time to engine time.
func (c *clock) scaled(d time.Duration) time.Duration { return time.Duration(float64(d) * c.scale) }

// wait blocks for d of engine time. If ctx ends before, it returns the cause of ctx.
func (c *clock) wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(c.real(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
