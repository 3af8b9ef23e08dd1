package redisstore_test

import (
	"carryover/logtest"
	"strings"
	"testing"
	"time"

	"carryover/convcache/redistest"
)

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
