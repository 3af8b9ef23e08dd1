package convcache_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"carryover/convcache"
)

// report counts a run of operations: an 'x' is a failure, a dot is not.
func report(b convcache.Breaker, run string) {
	for _, c := range run {
		b.Record(c == '.')
	}
}

func TestBreaker_Opens(t *testing.T) {
	for _, test := range []struct {
		name  string
		run   string
		opens bool
	}{
		{"four in a row", "xxxx", false},
		{"five in a row", "xxxxx", true},
		{"four and four", "xxxx.xxxx", false},
		{"four and five", "xxxx.xxxxx", true},
		{"half of eighteen", "x.x.x.x.x.x.x.x.x.", false},
		{"half of nineteen", "x.x.x.x.x.x.x.x.x.x", false},
		{"half of twenty", "x.x.x.x.x.x.x.x.x.x.", true},
		{"nine of twenty", "..x.x.x.x.x.x.x.x.x.", false},
		{"half in the end", "....................xxxx.xxxx.xxxx.xxxx.xxxx.xxxx.xxxx.", true},
		{"a third of thirty", "..x..x..x..x..x..x..x..x..x..x", false},
	} {
		c := &clock{}
		b := convcache.NewBreaker(c.now)
		report(b, test.run)
		if got := !b.Allows(); got != test.opens {
			t.Errorf("%s: opened: got %v, want %v", test.name, got, test.opens)
		}
		if got := len(b.Opened()) == 1; got != test.opens {
			t.Errorf("%s: told that it opened: got %v, want %v", test.name, got, test.opens)
		}
	}
}

func TestBreaker_ForgetsOldFailures(t *testing.T) {
	c := &clock{}
	b := convcache.NewBreaker(c.now)
	report(b, "x.x.x.x.x.x.x.x.x.x")
	c.advance(time.Second)
	report(b, ".")
	if !b.Allows() {
		t.Error("half of twenty failed, but not within a second, and it opened")
	}
	c.advance(time.Second - 1)
	report(b, "x.x.x.x.x.x.x.x.x.x")
	if b.Allows() {
		t.Error("half of twenty failed within a second, and it did not open")
	}

	b = convcache.NewBreaker(c.now)
	report(b, "....................") // a clock that was set back must not keep these in the window
	c.advance(-time.Hour)
	report(b, "x.x.x.x.x.x.x.x.x.x.")
	if b.Allows() {
		t.Error("after the clock was set back half of twenty failed, and it did not open")
	}

	b = convcache.NewBreaker(c.now)
	for range 4 {
		report(b, "x")
		c.advance(time.Hour)
	}
	report(b, "x")
	if b.Allows() {
		t.Error("five in a row failed, however slowly, and it did not open")
	}
}

func TestBreaker_IsSetFromOutside(t *testing.T) {
	c := &clock{}
	b := convcache.NewBreaker(c.now)
	b.Set(true)
	report(b, "....................")
	if b.Allows() {
		t.Error("what was sent before has closed it")
	}
	b.Set(true)
	b.Set(false)
	if !b.Allows() {
		t.Error("closed, it allows nothing")
	}
	if len(b.Opened()) != 0 {
		t.Error("closed, it still tells that it opened")
	}
	report(b, "xxxx")
	if !b.Allows() {
		t.Error("failures from before count after it was closed")
	}
	report(b, "x")
	if b.Allows() || len(b.Opened()) != 1 {
		t.Error("five in a row failed after it was closed, and it did not open")
	}
}

func TestRedis_TestsAgainEverMoreSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := convcache.NewUnconnected(convcache.RedisConfig{Now: time.Now})
		var mu sync.Mutex // guards at
		var at []time.Duration
		well := 0
		began := time.Now()
		answers := func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if r.Shares() {
				well++
				return nil
			}
			at = append(at, time.Since(began))
			if len(at) < 9 {
				return errors.New("no answer")
			}
			return nil
		}
		times := func() []time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(at)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Watch(ctx, answers) }()
		<-time.After(time.Hour)
		if got := times(); len(got) != 0 {
			t.Errorf("tested again after %v, want never while all is well", got)
		}
		mu.Lock()
		if well < 700 || well > 720 {
			t.Errorf("tested %d times in an hour in which all was well, want every 5 s", well)
		}
		mu.Unlock()
		began = time.Now()
		r.OpenBreaker()
		<-time.After(time.Hour)
		var want []time.Duration
		for _, seconds := range []int{1, 3, 7, 15, 31, 61, 91, 121, 151} {
			want = append(want, time.Duration(seconds)*time.Second)
		}
		if got := times(); !slices.Equal(got, want) {
			t.Errorf("tested after %v, want %v", got, want)
		}

		began = time.Now()
		r.OpenBreaker() // and from the beginning when it fails anew
		<-time.After(time.Minute)
		if got := times()[len(want):]; !slices.Equal(got, []time.Duration{time.Second}) {
			t.Errorf("tested after %v, want once after 1s", got)
		}
		cause := errors.New("the end")
		cancel(cause)
		if got := <-ended; !errors.Is(got, cause) {
			t.Errorf("run: got %v, want %v", got, cause)
		}
	})
}

// A server that is full, or that refuses a script, answers look-ups all the same.
func TestRedis_NoticesWhatLookUpsDoNotShow(t *testing.T) {
	for _, test := range []struct {
		err   error
		after time.Duration
		want  convcache.RedisState
	}{
		{errors.New("OOM command not allowed"), 10 * time.Second, convcache.RedisDown},
		{fmt.Errorf("%w: its ACL must allow", convcache.ErrRedisForbids), 5 * time.Second, convcache.RedisRefused},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := convcache.NewUnconnected(convcache.RedisConfig{Now: time.Now})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- r.Watch(ctx, func(context.Context) error { return test.err }) }()
			for range int(test.after/time.Second)*10 - 1 {
				<-time.After(time.Second / 10)
				r.Record(nil)
			}
			if got := r.State(); got != convcache.RedisUp || !r.Shares() {
				t.Errorf("%v: before %v: got %v, want %v", test.err, test.after, got, convcache.RedisUp)
			}
			<-time.After(time.Second)
			if got := r.State(); got != test.want || r.Shares() {
				t.Errorf("%v: after %v: got %v, want %v and nothing shared", test.err, test.after, got, test.want)
			}
			cancel()
			if got := <-ended; !errors.Is(got, context.Canceled) {
				t.Errorf("run: got %v, want %v", got, context.Canceled)
			}
		})
	}
}

func TestRedis_RunSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := convcache.NewUnconnected(convcache.RedisConfig{Now: time.Now})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Watch(ctx, func(context.Context) error { return errors.New("no answer") }) }()
		r.OpenBreaker()
		if _, got := r.Put(ctx, key(1), ticket(1, 10), time.Second); got != convcache.Stored {
			t.Errorf("put: got %v, want %v", got, convcache.Stored)
		}
		<-time.After(2 * time.Minute)
		if got := r.Len(); got != 0 {
			t.Errorf("conversations after their end: got %d, want 0", got)
		}
		cancel()
		if got := <-ended; !errors.Is(got, context.Canceled) {
			t.Errorf("run: got %v, want %v", got, context.Canceled)
		}
	})
}
