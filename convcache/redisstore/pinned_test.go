package redisstore_test

import (
	"fmt"
	"strings"
	"testing"

	"carryover/convcache/redistest"
)

// Each replica hears what others pin, for as long as they tell it.
func TestRedis_ReplicasTellWhatTheyPin(t *testing.T) {
	s := redistest.Start(t)
	setLeast(s, leastCommands())
	cfg := Config{Addresses: []string{s.Addr()}, Username: "carryover", Password: "the password"}
	a, b := openRedis(t, cfg), openRedis(t, cfg)
	want := func(r *replica, tokens int, want string) {
		t.Helper()
		if got, err := r.SharePinned(t.Context(), incarnationOne, tokens); fmt.Sprint(got, err) != want {
			t.Errorf("got %v, error %v, want %s", got, err, want)
		}
	}
	want(a, 10, "[] <nil>")
	want(b, 20, "[10] <nil>")
	want(a, 0, "[20] <nil>")
	want(b, 1<<40, "[0] <nil>")
	key := strings.TrimSpace(s.CLI("KEYS", "*:pinned:*"))
	notes := strings.Fields(s.CLI("HGET", key, "0i"))
	for _, other := range []string{"x", notes[0] + " 1790000000000 5;", notes[0] + " 9990000000000 5;", notes[0] + " " + notes[1] + " -5;"} {
		s.CLI("HSET", key, "0i", other) // of before, of a clock that was set, or forged
		want(a, 10, "[] <nil>")
	}
}
