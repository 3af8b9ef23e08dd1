package redisstore_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/convcache/redistest"
)

// storeLog keeps what a store logs.
type storeLog struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

// Write appends one line.
func (l *storeLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// count returns how often a text was logged.
func (l *storeLog) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

func (l *storeLog) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func TestRedis_LogsWhatChanges(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	setLeast(s, leastCommands())
	var log storeLog
	const password = "the password"
	r := openOn(t, s, Config{Username: "carryover", Password: password, Now: time.Now, Logger: log.logger()})
	mustCheck(t, r)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("run: got %v, want %v", err, context.Canceled)
		}
	})
	s.Kill()
	for r.Shares() {
		wantLook(t, r, key(1), Unavailable)
	}
	eventually(t, "a store that knows that it is alone", func() bool { return r.State() == convcache.RemoteDown })
	s.Restart() // without the user, which no file keeps
	eventually(t, "a store that is refused", func() bool { return r.State() == convcache.RemoteRefused })
	wantHome(t, r, key(1))
	setLeast(s, leastCommands())
	eventually(t, "a store that shares again", func() bool { return r.State() == convcache.RemoteUp })
	cancel()
	running.Wait()
	for text, want := range map[string]int{
		"redis does not work": 1, "redis can't be used": 1, "redis answers": 1, password: 0, "level": 3,
	} {
		if got := log.count(text); got != want {
			t.Errorf("logged %q: got %d times, want %d", text, got, want)
		}
	}
}

func TestRedis_LogsForgedValuesOnceAMinute(t *testing.T) {
	s := redistest.Start(t)
	c := &clock{}
	var log storeLog
	r := openOn(t, s, Config{Now: c.now, Logger: log.logger()})
	wantPut(t, r, key(1), fullTicket(1), Stored)
	fields := readHash(t, r, key(1))
	fields["0b"] = "\x01nonsense of somebody"
	writeHash(t, r, key(1), fields)
	const warning = "not authentic"
	for minute := range 3 {
		for range 5 {
			wantLook(t, r, key(1), Empty)
		}
		if got, want := log.count(warning), minute+1; got != want {
			t.Errorf("warnings after %d minutes: got %d, want %d", minute, got, want)
		}
		c.advance(time.Minute)
	}
}

func TestRedis_LogsClocksThatDifferOnce(t *testing.T) {
	s := redistest.Start(t)
	for _, test := range []struct {
		ahead time.Duration
		want  int
	}{{0, 0}, {time.Minute, 1}, {-time.Minute, 1}} {
		var log storeLog
		now := func() time.Time { return time.Now().Add(test.ahead) }
		r := openOn(t, s, Config{Now: now, Logger: log.logger()})
		for range 3 { // once is enough for a line that would come every five seconds
			mustCheck(t, r)
		}
		if got := log.count("clock"); got != test.want {
			t.Errorf("a clock %v ahead: got %d warnings, want %d", test.ahead, got, test.want)
		}
	}
}

// A server that does not know AUTH repeats what it was sent.
func TestRedis_RepeatsNoPassword(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--rename-command", "HELLO", "", "--rename-command", "AUTH", "")
	var log storeLog
	const password = "the password"
	r := openOn(t, s, Config{Username: "somebody", Password: password, Now: time.Now, Logger: log.logger()})
	for r.Shares() {
		wantLook(t, r, key(1), Unavailable)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	if err := r.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("run: got %v, want %v", err, context.DeadlineExceeded)
	}
	err := r.Check(t.Context())
	if err == nil || !strings.Contains(err.Error(), "unknown command") || strings.Contains(err.Error(), password) {
		t.Errorf("check: got %v, want an error that names the command and not the password", err)
	}
	if log.count("level") == 0 || log.count(password) != 0 {
		t.Errorf("got %d lines and the password in %d of them, want some and 0", log.count("level"), log.count(password))
	}
}

// A check that failed before another succeeded is over: Run does not take it for news.
func TestRedis_RunForgetsWhatCheckMended(t *testing.T) {
	s := redistest.Start(t)
	var log storeLog
	r := openOn(t, s, Config{Now: time.Now, Logger: log.logger()})
	s.Kill()
	if err := r.Check(t.Context()); err == nil {
		t.Error("check of no server: got no error")
	}
	s.Restart()
	mustCheck(t, r)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("run: got %v, want %v", err, context.DeadlineExceeded)
	}
	if got := r.State(); got != convcache.RemoteUp || log.count("level") != 0 {
		t.Errorf("state: got %v and %d lines logged, want %v and none", got, log.count("level"), convcache.RemoteUp)
	}
}
