package doctor

import (
	"strings"
	"testing"

	"carryover/cmd/carryover/testrig"
	"carryover/convcache/redistest"
)

func TestDoctor_FindsWhatIsWrongWithRedis(t *testing.T) {
	for _, tc := range []struct {
		name   string
		server []string // arguments
		user   string   // of the ACL, who may run no scripts, and a password
		want   string
		fix    string
	}{
		{"drops anything", []string{"--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"}, "", codeRedisEviction, "volatile-ttl"},
		{"an ACL without scripts", nil, "carryover:pass@", codeRedisForbids, "ACL SETUSER"},
		{"a wrong password", nil, "carryover:wrong@", codeRedisForbids, "ACL"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, tc.server...)
			server.CLI("ACL", "SETUSER", "carryover", "on", ">pass", "~carryover:*", "-@all", "+hmget", "+time", "+info", "+scan")
			w := newWard(t, nil, "--redis-url", "redis://"+tc.user+server.Addr())
			w.env, w.options.noTurns = []string{testrig.ReplicaSecret}, true
			told := w.examine(t)
			if f := told.find(t, tc.want); !strings.Contains(f.Fix, tc.fix) || f.Where != whereRedis || len(told.wrong()) != 1 ||
				strings.Contains(f.What, "pass") && strings.Contains(f.What, "wrong") {
				t.Errorf("%+v", told.wrong())
			}
		})
	}
}

func TestDoctor_FindsARedisThatIsGone(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	w := newWard(t, nil, "--redis-url", "redis://"+server.Addr())
	w.env, w.options.noTurns = []string{testrig.ReplicaSecret}, true
	told := w.examine(t)
	if f := told.find(t, codeRedisDown); !strings.Contains(f.Fix, "--store-timeout") {
		t.Errorf("%+v", f)
	}
}
