package admin_test

import (
	"net/http"
	"strings"
	"testing"

	"carryover/server/admin"
)

func TestProfiles_AreForOperators(t *testing.T) {
	deps, _ := newDeps(t)
	deps.Token = "secret"
	h := admin.New(deps)
	bearer := func(r *http.Request) { r.Header.Set("Authorization", "Bearer secret") }
	for _, name := range []string{"profile?seconds=1", "heap", "allocs", "goroutine"} {
		path := "/debug/pprof/" + name
		if status, _ := ask(t, h, "GET", path, "", nil); status != http.StatusUnauthorized {
			t.Errorf("%s without a token: got %d", path, status)
		}
		// Profiles are gzip streams.
		if status, body := ask(t, h, "GET", path, "", bearer); status != http.StatusOK || !strings.HasPrefix(body, "\x1f\x8b") {
			t.Errorf("%s: got %d and %d bytes", path, status, len(body))
		}
	}
	for _, name := range []string{"cmdline", "trace", "symbol", "block", "x"} {
		if status, _ := ask(t, h, "GET", "/debug/pprof/"+name, "", bearer); status != http.StatusNotFound {
			t.Errorf("%s is served: %d", name, status)
		}
	}
}
