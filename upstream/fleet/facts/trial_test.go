package facts

import (
	"net/http"
	"testing"

	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// What an engine fails of our own request is its fault; what it refuses says nothing.
func TestTry_OfEngines(t *testing.T) {
	otherwise := &upstream.LegError{Kind: upstream.Timeout}
	failed := func(kind upstream.Kind) *upstream.LegError { return &upstream.LegError{Kind: kind} }
	answers := func(status int, body string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	for name, row := range map[string]struct {
		answer func(http.ResponseWriter)
		want   *upstream.LegError
	}{
		"serves":     {answers(200, `{"choices":[{"text":"x"}]}`), nil},
		"fails":      {answers(500, `{"error":{}}`), failed(upstream.Status)},
		"error":      {answers(200, `{"error":{}}`), failed(upstream.Garbage)},
		"no JSON":    {answers(200, `choices`), failed(upstream.Garbage)},
		"breaks":     {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, failed(upstream.Broken)},
		"our key":    {answers(401, `{"error":"Unauthorized"}`), otherwise},
		"no model":   {answers(404, `{}`), otherwise},
		"not that":   {answers(501, `{}`), otherwise},
		"is at most": {answers(429, `{}`), otherwise},
	} {
		s := newRig(t).incarnationOf(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/completions" {
				http.NotFound(w, r)
				return
			}
			row.answer(w)
		})
		if got := s.Capability.Try(t.Context(), otherwise); (got == nil) != (row.want == nil) || got != nil && got.Kind != row.want.Kind {
			t.Errorf("%s: got %v, want %v", name, got, row.want)
		}
	}
}

// An engine that serves fails no question, leaves nothing, and says once whether it checks keys.
func TestTry_OfSimulatedEngines(t *testing.T) {
	for key, checks := range map[string]bool{"": false, "secret": true} {
		sim, e := newRig(t).simulate(upstream.RoleDecode, func(c *vllmsim.Config) { c.APIKey = key })
		s := tells(e, "1")
		if got := s.Capability.Try(t.Context(), nil); got != nil {
			t.Errorf("key %q: %v", key, got)
		}
		asked := len(paths(sim))
		for range 2 {
			if got := s.Keys.Checked(t.Context()); got != checks || len(paths(sim)) != asked+1 {
				t.Errorf("key %q: checks keys: %t, asked %d times", key, got, len(paths(sim))-asked)
			}
		}
		if stats := sim.Stats(); stats.Pins != 0 {
			t.Errorf("key %q: %d pins are left", key, stats.Pins)
		}
	}
}
