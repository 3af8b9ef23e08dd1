package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// Docker's own, where a health check leaves them out.
const (
	healthInterval = 30 * time.Second
	healthTimeout  = 30 * time.Second
	healthRetries  = 3
)

// watch runs the health check of a service as Docker does, until it is healthy: the first after an interval, a failure counts once
// start_period is over, and the service is unhealthy after as many in a row as there are retries.
func (s *stack) watch(ctx context.Context, started *service) error {
	test, err := s.loopback.HealthCheck(started.name)
	if err != nil {
		return err
	}
	check := started.config.HealthCheck
	interval, timeout, retries, period := healthInterval, healthTimeout, uint64(healthRetries), time.Duration(0)
	if check.Interval != nil {
		interval = time.Duration(*check.Interval)
	}
	if check.Timeout != nil {
		timeout = time.Duration(*check.Timeout)
	}
	if check.Retries != nil {
		retries = *check.Retries
	}
	if check.StartPeriod != nil {
		period = time.Duration(*check.StartPeriod)
	}
	begun := time.Now()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for failed := uint64(0); ; {
		select {
		case <-tick.C:
		case <-started.ended:
			return fmt.Errorf("%s has ended: %v", started.name, started.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("%s is not healthy: %w", started.name, ctx.Err())
		}
		said, err := probe(ctx, test, timeout)
		if err == nil {
			return nil
		}
		if time.Since(begun) > period {
			failed++
		}
		if failed >= retries {
			return fmt.Errorf("%s is unhealthy: %v: %w: %s", started.name, test, err, said)
		}
	}
}

// probe runs a health check once.
func probe(ctx context.Context, test []string, timeout time.Duration) (said []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, test[0], test[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.WaitDelay = time.Second
	said, err = cmd.CombinedOutput()
	return bytes.TrimSpace(said), err
}
