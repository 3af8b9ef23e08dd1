package talk

import (
	"context"
	"time"
)

// Clock is that of simulated engines: how much faster than the wall clock it runs.
type Clock float64

// Wall is how long so much engine time takes.
func (c Clock) Wall(d time.Duration) time.Duration { return time.Duration(float64(d) / float64(c)) }

// Engine is how much engine time passes meanwhile.
func (c Clock) Engine(wall time.Duration) time.Duration {
	return time.Duration(float64(wall) * float64(c))
}

// Sleep passes engine time. The error is ctx's.
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
