package redisstore_test

import (
	"carryover/logtest"
	"strings"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/convcache/redistest"
)

func TestRedis_LogsWhatChanges(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	setLeast(s, leastCommands())
	var log logtest.Log
	const password = "the password"
	r := openAt(t, s, Config{Username: "carryover", Password: password, Now: time.Now, Logger: log.Logger()})
	r.check()
	runBeside(t, r)
	s.Kill()
	for r.Shares() {
		r.look(k1, Unavailable)
	}
	eventually(t, "a store that knows that it is alone", func() bool { return r.State() == convcache.RemoteDown })
	s.Restart() // without the user, which no file keeps
	eventually(t, "a store that is refused", func() bool { return r.State() == convcache.RemoteRefused })
	r.home(k1)
	setLeast(s, leastCommands())
	eventually(t, "a store that shares again", func() bool { return r.State() == convcache.RemoteUp })
	eventually(t, "a line that it answers", func() bool { return log.Count("redis answers") > 0 })
	for text, want := range map[string]int{
		"redis does not work": 1, "redis can't be used": 1, "redis answers": 1, password: 0, "level": 3,
	} {
		if got := log.Count(text); got != want {
			t.Errorf("logged %q: got %d times, want %d", text, got, want)
		}
	}
}

func TestRedis_LogsClocksThatDifferOnce(t *testing.T) {
	s := redistest.Start(t)
	for _, test := range []struct {
		ahead time.Duration
		want  int
	}{{0, 0}, {time.Minute, 1}, {-time.Minute, 1}} {
		var log logtest.Log
		now := func() time.Time { return time.Now().Add(test.ahead) }
		r := openAt(t, s, Config{Now: now, Logger: log.Logger()})
		for range 3 { // once is enough for a line that would come every five seconds
			r.check()
		}
		if got := log.Count("clock"); got != test.want {
			t.Errorf("a clock %v ahead: got %d warnings, want %d", test.ahead, got, test.want)
		}
	}
}

// A server that does not know AUTH repeats what it was sent.
func TestRedis_RepeatsNoPassword(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--rename-command", "HELLO", "", "--rename-command", "AUTH", "")
	var log logtest.Log
	const password = "the password"
	r := openAt(t, s, Config{Username: "somebody", Password: password, Now: time.Now, Logger: log.Logger()})
	for r.Shares() {
		r.look(k1, Unavailable)
	}
	runBeside(t, r)
	eventually(t, "a line", func() bool { return log.Count("level") > 0 })
	err := r.Check(t.Context())
	if err == nil || !strings.Contains(err.Error(), "unknown command") || strings.Contains(err.Error(), password) {
		t.Errorf("check: got %v, want an error that names the command and not the password", err)
	}
	if log.Count(password) != 0 {
		t.Error("the password is logged")
	}
}
