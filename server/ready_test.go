package server_test

import (
	"fmt"
	"strings"
	"testing"

	"carryover/server"
	"carryover/server/turn"
	"carryover/upstream"
)

func TestReady_TellsOfRedis(t *testing.T) {
	var state string
	r := newRig(t, setup{deps: func(d *server.Deps) { d.RedisState = func() string { return state } }})
	want := func(status int, word string) {
		t.Helper()
		for _, state = range []string{"up", "down", "refused"} {
			if p := r.get("/readyz"); p.status != status || strings.TrimSpace(p.body) != fmt.Sprintf(word, state) {
				t.Errorf("redis %s: got %d %s, want %d "+word, state, p.status, p.body, status, state)
			}
		}
	}
	want(200, `{"decode":1,"prefill":1,"redis":"%s","status":"ready","store":"redis"}`)
	r.engine(r.decode[0]).Refused()
	want(503, `{"decode":0,"prefill":1,"redis":"%s","status":"no_instance","store":"redis"}`)
}

func TestReady_WithoutPrefillWhereDecodeMayServeAlone(t *testing.T) {
	for _, row := range []struct {
		cfg    turn.RoutingConfig
		named  bool
		status int
		want   string
	}{
		{turn.RoutingConfig{}, false, 200, `"status":"decode_only","store":"memory","why":"no prefill instance answers; decode serves 16 turns at once alone"}`},
		{turn.RoutingConfig{PrefillFailure: turn.PrefillDecodeOnly}, false, 200, `"status":"decode_only","store":"memory","why":"no prefill instance answers; decode serves 16 turns at once alone"}`},
		{turn.RoutingConfig{PrefillFailure: turn.PrefillError}, false, 503, `"status":"starting","store":"memory"}`},
		{turn.RoutingConfig{PrefillFailure: turn.PrefillError, DisaggThreshold: 1}, false, 200, `"status":"decode_only","store":"memory","why":"no prefill instance answers; decode serves turns below the threshold alone"}`},
		{turn.RoutingConfig{PrefillFailure: turn.PrefillError}, true, 200, `"status":"decode_only","store":"memory","why":"requests name their prefill instance"}`},
	} {
		s := setup{deadPrefills: -1, cfg: func(c *server.Config) { c.RoutingConfig = row.cfg }}
		if row.named {
			s.deps = func(d *server.Deps) { d.Prefillers = &prefillers{} }
		}
		r := newRig(t, s)
		r.deps.Fleet.Engines(upstream.RolePrefill)[0].Refused()
		if p := r.get("/readyz"); p.status != row.status || strings.TrimSpace(p.body) != `{"decode":1,"prefill":0,`+row.want {
			t.Errorf("%+v: got %d %s, want %d %s", row.cfg, p.status, p.body, row.status, row.want)
		}
		r.engine(r.decode[0]).Refused()
		if p := r.get("/readyz"); p.status != 503 || !strings.Contains(p.body, `"status":"no_instance"`) {
			t.Errorf("%+v, without decode: got %d %s, want 503", row.cfg, p.status, p.body)
		}
		if _, why := r.server.Ready(); why != "no decode instance answers" {
			t.Errorf("%+v, without decode: because %q", row.cfg, why)
		}
	}
}

// Nothing is ready before an engine of each role that is needed has answered, or behind a connection that the last has refused.
func TestReady_FollowsWhatEnginesAnswer(t *testing.T) {
	r := newRig(t, setup{probeless: true, cfg: func(c *server.Config) { c.PrefillFailure = turn.PrefillError }})
	want := func(when string, status int, word string) {
		t.Helper()
		if p := r.get("/readyz"); p.status != status || !strings.Contains(p.body, `"status":"`+word+`"`) {
			t.Errorf("%s: got %d %s, want %d %s", when, p.status, p.body, status, word)
		}
	}
	want("at first", 503, "starting")
	r.engine(r.decode[0]).Refresh(t.Context())
	want("with decode", 503, "starting")
	r.server.SetRouting(turn.RoutingConfig{})
	want("with decode, which may serve alone", 200, "decode_only")
	r.server.SetRouting(turn.RoutingConfig{PrefillFailure: turn.PrefillError})
	r.engine(r.prefill[0]).Refresh(t.Context())
	want("with both", 200, "ready")
	r.engine(r.prefill[0]).Refused()
	want("after a connection that prefill refused", 503, "no_instance")
}
