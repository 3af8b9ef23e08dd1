package talk

import (
	"context"
	"time"
)

// Clock is how much faster than the wall clock simulated engines' clocks run.
type Clock float64

// Wall converts engine time to wall time.
func (c Clock) Wall(d time.Duration) time.Duration { return time.Duration(float64(d) / float64(c)) }

// Engine converts wall time to engine time.
func (c Clock) Engine(wall time.Duration) time.Duration {
	return time.Duration(float64(wall) * float64(c))
}

// Sleep waits for an engine time. The error is ctx's.
func (c Clock) Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(c.Wall(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
