package redisstore_test

import (
	"carryover/logtest"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/convcache/redisstore"
	"carryover/convcache/redistest"
)

var errHeardEnough = errors.New("heard enough")

// openStore is openRedis without what surrounds the store.
func openStore(t *testing.T, cfg Config) *redisstore.Store {
	t.Helper()
	return openRedis(t, cfg).store
}

// ear keeps what a replica hears.
type ear struct {
	mu    sync.Mutex // guards heard
	heard []string
}

func (e *ear) hear(message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard = append(e.heard, message)
}

func (e *ear) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.heard)
}

// listens has a replica subscribe until the end of the test.
func listens(t *testing.T, r *redisstore.Store) *ear {
	t.Helper()
	e := &ear{}
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Channel().Subscribe(ctx, e.hear) }()
	t.Cleanup(func() {
		cancel(errHeardEnough)
		select {
		case err := <-done:
			if !errors.Is(err, errHeardEnough) {
				t.Errorf("subscription: got %v, want %v", err, errHeardEnough)
			}
		case <-time.After(time.Minute):
			t.Error("the subscription does not end with its context")
		}
	})
	return e
}

// wantHeard publishes until all hear it.
func wantHeard(t *testing.T, from *redisstore.Store, what string, ears ...*ear) {
	t.Helper()
	for i, e := range ears {
		n := 0
		eventually(t, fmt.Sprintf("ear %d: %s", i, what), func() bool {
			n++
			_ = from.Channel().Publish(t.Context(), fmt.Sprint(what, " ", n))
			return slices.ContainsFunc(e.all(), func(heard string) bool { return strings.HasPrefix(heard, what+" ") })
		})
	}
}

// carries checks what holds of the channel wherever it is.
func carries(t *testing.T, cfg Config) {
	t.Helper()
	cfg.Prefix = freshPrefix()
	one, two := openStore(t, cfg), openStore(t, cfg)
	other := cfg
	other.Prefix = freshPrefix()
	foreign := listens(t, openStore(t, other))
	first, second := listens(t, one), listens(t, two)
	wantHeard(t, one, "begin", first, second)
	wantHeard(t, two, "begin two", first, second)
	const count = 200
	for i := range count {
		must(t, one.Channel().Publish(t.Context(), fmt.Sprintf("\x84 bytes \xff %d", i)))
	}
	for i, e := range []*ear{first, second} {
		var got []string
		eventually(t, "all messages", func() bool {
			got = slices.DeleteFunc(e.all(), func(m string) bool { return !strings.HasPrefix(m, "\x84") })
			return len(got) >= count
		})
		for n, message := range got {
			if want := fmt.Sprintf("\x84 bytes \xff %d", n); message != want {
				t.Fatalf("replica %d: got %q, want %q: each once, in order", i, message, want)
			}
		}
	}
	if heard := foreign.all(); len(heard) > 0 {
		t.Errorf("under another prefix %d messages were heard", len(heard))
	}
}

// A user that may not publish or subscribe is refused at the start, not found when the first notification is lost.
func TestChannel_CheckNamesTheACL(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	cfg := Config{Username: "carryover", Password: "the password", Prefix: freshPrefix(), Messages: true}
	own := "&" + cfg.Prefix + ":*"
	want := "+publish +subscribe on the keys ~" + cfg.Prefix + ":* and the channels " + own
	check := func(channels string, allowed ...string) error {
		setLeast(s, append(leastCommands(), allowed...))
		s.CLI("ACL", "SETUSER", "carryover", "~"+cfg.Prefix+":*", "resetchannels", channels)
		return openAt(t, s, cfg).Check(t.Context())
	}
	must(t, check(own, "publish", "subscribe"))
	for _, err := range []error{check(own, "subscribe"), check(own, "publish"), check("&another:*", "publish", "subscribe")} {
		if !errors.Is(err, convcache.ErrRemoteForbids) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	cfg.Messages = false // nothing is published
	must(t, check("&another:*", "subscribe"))
}

func TestChannel_OutlivesTheServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var log logtest.Log
	r := openStore(t, Config{Addresses: []string{s.Addr()}, Logger: log.Logger()})
	e := listens(t, r)
	wantHeard(t, r, "before", e)
	s.Kill()
	if err := r.Channel().Publish(t.Context(), "to nobody"); err == nil {
		t.Error("no error of a server that is not there")
	}
	s.Restart()
	wantHeard(t, r, "after a restart", e)
	s.CLI("CLIENT", "KILL", "TYPE", "pubsub")
	wantHeard(t, r, "after a lost connection", e)
	if got := log.Count("are not heard"); got != 1 {
		t.Errorf("got %d lines, want 1 a minute", got)
	}
}

// A connection on which nothing comes any more, without an end.
func TestChannel_NoticesAServerThatKeepsSilent(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := redistest.Forward(t, s.Addr())
	var log logtest.Log
	speaker := openStore(t, Config{Addresses: []string{s.Addr()}})
	e := listens(t, openStore(t, Config{Addresses: []string{f.Addr()}, Logger: log.Logger()}))
	wantHeard(t, speaker, "before", e)
	f.Hang(true)
	eventually(t, "a subscription that is given up", func() bool { return log.Count("are not heard") == 1 })
	f.Hang(false)
	wantHeard(t, speaker, "after", e)
}

// What somebody else publishes, or a replica with another secret, is heard by nobody.
func TestChannel_ForgedMessagesAreNotHeard(t *testing.T) {
	s := redistest.Start(t)
	var log logtest.Log
	cfg := Config{Addresses: []string{s.Addr()}, Prefix: freshPrefix(), Logger: log.Logger()}
	r := openStore(t, cfg)
	cfg.Secret = mustSecret(t, "the secret of somebody else")
	foreign := openStore(t, cfg)
	e := listens(t, r)
	wantHeard(t, r, "ours", e)
	_ = foreign.Channel().Publish(t.Context(), "theirs")
	for _, value := range []string{"", "theirs", "\x01theirs", "\x01" + strings.Repeat("x", 40)} {
		must(t, r.Client().Publish(t.Context(), r.ChannelName(), value).Err())
	}
	wantHeard(t, r, "ours again", e)
	for _, message := range e.all() {
		if !strings.HasPrefix(message, "ours") {
			t.Errorf("heard %q", message)
		}
	}
	if log.Count("not authentic") != 1 {
		t.Error("the log does not say so")
	}
}
