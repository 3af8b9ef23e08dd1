package turn

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet"
)

// newPair returns an incarnation of prefill and one of decode, of engines that answer /metrics and nothing else.
func newPair(tb testing.TB) (prefill, decode *fleet.Incarnation) {
	tb.Helper()
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "process_start_time_seconds 1.5e+09\n")
	}))
	tb.Cleanup(engine.Close)
	client := upstream.NewClient(upstream.ClientConfig{DialTimeout: time.Minute})
	tb.Cleanup(client.Close)
	f := fleet.New(fleet.Config{Client: client, ReadLimit: time.Minute})
	f.Set([]upstream.Instance{
		{Name: "p", Role: upstream.RolePrefill, BaseURL: engine.URL},
		{Name: "d", Role: upstream.RoleDecode, BaseURL: engine.URL},
	})
	return f.Engines(upstream.RolePrefill)[0].Current(tb.Context()), f.Engines(upstream.RoleDecode)[0].Current(tb.Context())
}
