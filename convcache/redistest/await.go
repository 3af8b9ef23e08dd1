package redistest

import (
	"testing"
	"time"
)

const (
	// limit bounds every wait. A healthy start takes milliseconds, a Cluster two seconds, a fail-over that a busy machine has to try
	// again more than ten.
	limit = 30 * time.Second
	// pause lies between two looks at a condition.
	pause = 5 * time.Millisecond
)

// poll asks until holds returns nil, and returns its last error if that does not come to pass.
func poll(holds func() error) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		err := holds()
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-deadline.C:
			return err
		}
	}
}

// await ends the test if holds does not come to return nil.
func await(tb testing.TB, what string, holds func() error) {
	tb.Helper()
	if err := poll(holds); err != nil {
		tb.Fatalf("wait for %s: not within %v: %v", what, limit, err)
	}
}
