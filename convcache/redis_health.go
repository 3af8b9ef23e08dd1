package convcache

import (
	"context"
	"errors"
	"time"
)

// RedisState says whether tickets are shared.
type RedisState int32

// The states. The zero value is that of a store that has not been checked.
const (
	// RedisUp: it answers, as far as is known.
	RedisUp RedisState = iota
	// RedisDown: it does not answer. Tickets stay in this process.
	RedisDown
	// RedisRefused: it answers, and forbids or lacks what is needed. Tickets stay in this process.
	RedisRefused
)

// String returns the state in lower case, for logs and readiness.
func (s RedisState) String() string {
	switch s {
	case RedisDown:
		return "down"
	case RedisUp:
		return "up"
	case RedisRefused:
		return "refused"
	}
	return "unknown"
}

// When a server is tested beside the turns: one that answers, so that it is known to have stopped also where
// there are few turns, and one that does not.
const (
	testEvery  = 5 * time.Second
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// State returns what is known of the server.
func (r *Redis) State() RedisState { return RedisState(r.state.Load()) }

func stateAfter(err error) RedisState {
	switch {
	case err == nil:
		return RedisUp
	case errors.Is(err, ErrRedisForbids):
		return RedisRefused
	}
	return RedisDown
}

// Run tests the server every 5 s, which the breaker counts like any operation, and one that has stopped to answer
// after 1 s, 2 s, … 30 s, until it does. It also removes what expires in this process. It returns the cause of
// ctx' end.
func (r *Redis) Run(ctx context.Context) error { return r.watch(ctx, r.test) }

// watch is Run with the test of the server to use.
func (r *Redis) watch(ctx context.Context, test func(context.Context) error) error {
	sweep, look := time.NewTicker(sweepEvery), time.NewTicker(testEvery)
	defer sweep.Stop()
	defer look.Stop()
	wait := firstRetry
	retry := time.NewTimer(wait)
	retry.Stop()
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-sweep.C:
			r.home.EvictStale()
		case <-look.C:
			if r.breaker.allows() {
				r.breaker.record(test(ctx) == nil)
			}
		case <-r.breaker.opened:
			if r.state.CompareAndSwap(int32(RedisUp), int32(RedisDown)) {
				r.cfg.Logger.Warn("redis does not answer; tickets stay in this process until it does")
			}
			wait = firstRetry
			retry.Reset(wait)
		case <-retry.C:
			if r.settled(test(ctx)) {
				continue
			}
			wait = min(2*wait, lastRetry)
			retry.Reset(wait)
		}
	}
}

// settled takes note of a test of a server that did not answer, and reports whether it does now.
func (r *Redis) settled(err error) bool {
	state := stateAfter(err)
	before := RedisState(r.state.Swap(int32(state)))
	switch {
	case err == nil:
		r.breaker.set(false)
		r.cfg.Logger.Info("redis answers; tickets are shared")
	case state != before && state == RedisRefused:
		r.cfg.Logger.Error("redis can't be used", "error", err)
	}
	return err == nil
}

// warnForged reports a value that is not authentic, once a minute at most.
func (r *Redis) warnForged() {
	now := r.cfg.Now().Unix()
	last := r.warned.Load()
	if now-last >= 60 && r.warned.CompareAndSwap(last, now) {
		r.cfg.Logger.Warn("redis holds values that are not authentic: another version or seal key wrote them, or somebody else did")
	}
}
