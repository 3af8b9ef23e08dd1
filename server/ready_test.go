package server_test

import (
	"strings"
	"testing"

	"carryover/server"
)

func TestReady_TellsOfRedis(t *testing.T) {
	for _, tc := range []struct {
		state            string
		required, decode bool
		status           int
		word             string
	}{
		{"up", false, true, 200, "ready"},
		{"up", true, true, 200, "ready"},
		{"down", false, true, 200, "ready"},
		{"down", true, true, 503, "store_down"},
		{"refused", false, true, 200, "ready"},
		{"refused", true, true, 503, "store_down"},
		{"down", true, false, 503, "no_instance"},
	} {
		s := setup{
			cfg:  func(c *server.Config) { c.RedisRequired = tc.required },
			deps: func(d *server.Deps) { d.RedisState = func() string { return tc.state } },
		}
		decodes := "1"
		if !tc.decode {
			s.deadDecodes, decodes = -1, "0"
		}
		r := newRig(t, s)
		if !tc.decode {
			r.turn("c", 1, true) // finds out that decode is gone
		}
		want := `{"decode":` + decodes + `,"prefill":1,"redis":"` + tc.state + `","status":"` + tc.word + `","store":"redis"}`
		if p := r.get("/readyz"); p.status != tc.status || strings.TrimSpace(p.body) != want {
			t.Errorf("redis %s, required %t: got %d %s, want %d %s", tc.state, tc.required, p.status, p.body, tc.status, want)
		}
	}
}
