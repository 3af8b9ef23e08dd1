package fleet

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"carryover/upstream"
	"carryover/upstream/fleet/health"
)

// Idle connections do not outlive what they were made for: behind the name of an engine that went down may be another.
func TestFleet_DropsIdleConnectionsWhenAnEngineGoes(t *testing.T) {
	for name, goes := range map[string]func(r *rig, other *Engine){
		"refused": func(_ *rig, other *Engine) { other.Refused() },
		"unhealthy": func(_ *rig, other *Engine) {
			for range health.UnhealthyAfter {
				other.Health.Probed(false)
			}
		},
		"removed": func(r *rig, _ *Engine) { r.Set(r.instances[:1]) },
	} {
		t.Run(name, func(t *testing.T) {
			var made atomic.Int32
			srv := httptest.NewUnstartedServer(answers(http.StatusOK, ""))
			srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					made.Add(1)
				}
			}
			srv.Start()
			t.Cleanup(srv.Close)
			r := newRig(t)
			e := r.add(upstream.RolePrefill, "a", srv.URL)
			other := r.named(upstream.RoleDecode, "b")[0]
			for range 2 {
				e.healthy(t.Context())
			}
			if n := made.Load(); n != 1 {
				t.Fatalf("%d connections before, want 1 that is used again", n)
			}
			goes(r, other)
			e.healthy(t.Context())
			if n := made.Load(); n != 2 {
				t.Errorf("%d connections, want a new one", n)
			}
		})
	}
}
