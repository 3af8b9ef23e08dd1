package server_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"carryover/server"
	"carryover/server/turn"
	"carryover/upstream"
	"carryover/upstream/fleet"
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
		r.deps.Fleet.Engines(upstream.RoleDecode)[0].Refused()
		if p := r.get("/readyz"); p.status != 503 || !strings.Contains(p.body, `"status":"no_instance"`) {
			t.Errorf("%+v, without decode: got %d %s, want 503", row.cfg, p.status, p.body)
		}
		if word, why := r.server.Ready(); word != "no_instance" || why != "no decode instance answers" {
			t.Errorf("%+v, without decode: %s, because %q", row.cfg, word, why)
		}
	}
}

// Nothing is ready before an engine of each role that is needed has answered, and an engine that has refused a connection counts again when it
// has answered, not when it is tried again.
func TestReady_FollowsWhatEnginesAnswer(t *testing.T) {
	passed := atomic.Int64{}
	r := newRig(t, setup{
		probeless: true,
		cfg:       func(c *server.Config) { c.PrefillFailure = turn.PrefillError },
		fleet: func(c *fleet.Config) {
			c.Now = func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
		},
	})
	want := func(when string, status int, word string) {
		t.Helper()
		if p := r.get("/readyz"); p.status != status || !strings.Contains(p.body, `"status":"`+word+`"`) {
			t.Errorf("%s: got %d %s, want %d %s", when, p.status, p.body, status, word)
		}
	}
	prefill, decode := r.engine(r.prefill[0]), r.engine(r.decode[0])
	want("at first", 503, "starting")
	decode.Refresh(t.Context())
	want("with decode", 503, "starting")
	r.server.SetRouting(turn.RoutingConfig{})
	want("with decode, which may serve alone", 200, "decode_only")
	r.server.SetRouting(turn.RoutingConfig{PrefillFailure: turn.PrefillError})
	prefill.Refresh(t.Context())
	want("with both", 200, "ready")
	decode.Refused()
	for range 5 {
		want("after a connection that was refused", 503, "no_instance")
		passed.Add(int64(time.Second))
	}
	decode.Refresh(t.Context())
	want("with decode again", 200, "ready")
	prefill.Refused()
	passed.Add(int64(time.Minute))
	want("after a connection that prefill refused", 503, "no_instance")
	prefill.Health.Answered() // a leg
	want("with both again", 200, "ready")
}
