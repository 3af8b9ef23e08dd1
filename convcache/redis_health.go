package convcache

import (
	"context"
	"errors"
	"sync/atomic"
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

// testsFailed is after how many failed tests in a row a server is not used any more, though look-ups may succeed:
// one that is full, or that refuses a script, answers every HMGET.
const testsFailed = 2

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

// Run tests the server every 5 s, and one that has stopped to do what is needed after 1 s, 2 s, … 30 s, until it
// does. It also removes what expires in this process. It returns the cause of
// ctx' end.
func (r *Redis) Run(ctx context.Context) error { return r.watch(ctx, r.test) }

// watch is Run with the test of the server to use.
func (r *Redis) watch(ctx context.Context, test func(context.Context) error) error {
	sweep, look := time.NewTicker(sweepEvery), time.NewTicker(testEvery)
	defer sweep.Stop()
	defer look.Stop()
	failed := 0
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
			if !r.breaker.allows() {
				continue
			}
			failed = r.judge(test(ctx), failed)
		case <-r.breaker.opened:
			failed = 0
			if r.state.CompareAndSwap(int32(RedisUp), int32(RedisDown)) {
				r.cfg.Logger.Warn("redis does not do what is needed; tickets stay in this process until it does", "error", r.lastFailure())
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

// judge takes note of a test of a server that is in use, which so many tests before it failed, and returns how
// many have now. One that forbids what is needed is not used any more, and neither is one that fails twice.
func (r *Redis) judge(err error, failed int) int {
	if err == nil {
		return 0
	}
	forbids := errors.Is(err, ErrRedisForbids)
	if forbids {
		r.settled(err)
	} else {
		r.failed(err)
	}
	if forbids || failed+1 >= testsFailed {
		r.breaker.set(true)
	}
	return failed + 1
}

// lastFailure is empty before any.
func (r *Redis) lastFailure() string {
	if err := r.failure.Load(); err != nil {
		return loggable(*err)
	}
	return ""
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
	if err != nil {
		r.failed(err)
	}
	return err == nil
}

// limited lets a line through once a minute.
type limited struct{ last atomic.Int64 } // Unix seconds

func (l *limited) due(now time.Time) bool {
	last := l.last.Load()
	return now.Unix()-last >= 60 && l.last.CompareAndSwap(last, now.Unix())
}

// warnForged reports a value that is not authentic.
func (r *Redis) warnForged() {
	if r.forged.due(r.cfg.Now()) {
		r.cfg.Logger.Warn("redis holds values that are not authentic: another version or seal key wrote them, or somebody else did")
	}
}

// noteLarge reports a ticket that is not shared for its size.
func (r *Redis) noteLarge(size int) {
	if r.large.due(r.cfg.Now()) {
		r.cfg.Logger.Info("a ticket is too large for redis and stays in this process", "bytes", size, "most", r.cfg.MaxValue)
	}
}

// noteFenced reports a ticket of another master.
func (r *Redis) noteFenced() {
	if r.fenced.due(r.cfg.Now()) {
		r.cfg.Logger.Info("redis has failed over or restarted; tickets from before are not used")
	}
}
