package engine

import (
	"context"
	"sync/atomic"
	"time"
)

// clockOrigin keeps readings far above zero, like perf_counter on a machine that has been up for a while. So an expiry time of 1.0 is always
// in the past.
const clockOrigin = time.Hour

// Clock is the engine's perf_counter: monotonic, scaled, unrelated to wall time and to the clocks of other instances.
type Clock struct {
	start    time.Time
	scale    float64
	advanced atomic.Int64 // nanoseconds added by Instance.Advance
}

// NewClock starts a clock that runs scale times as fast as the wall clock.
func NewClock(scale float64) *Clock { return &Clock{start: time.Now(), scale: scale} }

// Now returns the time on this clock, which no other clock shares.
func (c *Clock) Now() time.Duration {
	elapsed := time.Duration(float64(time.Since(c.start)) * c.scale)
	return clockOrigin + elapsed + time.Duration(c.advanced.Load())
}

// Advance moves the clock forward.
func (c *Clock) Advance(d time.Duration) { c.advanced.Add(int64(d)) }

// Real converts engine time to wall time.
func (c *Clock) Real(d time.Duration) time.Duration { return time.Duration(float64(d) / c.scale) }

// Scaled converts wall time to engine time.
func (c *Clock) Scaled(d time.Duration) time.Duration { return time.Duration(float64(d) * c.scale) }

// Wait blocks for d of engine time. If ctx ends first, it returns the cause of ctx.
func (c *Clock) Wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(c.Real(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
