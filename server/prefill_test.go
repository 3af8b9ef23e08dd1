package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/server"
)

// What an engine says of a request reaches the client in the shape of OpenAI's errors, bounded, and without what is the engine's own.
func TestPrefill_ErrorsArePassedOnRedacted(t *testing.T) {
	for _, row := range []struct{ body, code, message, kind, param string }{
		{`{"error":{"message":"no such\u0007 thing at PREFILL and DECODE","type":"EngineType"}}`, "invalid_request", "no such thing at upstream and upstream", "EngineType", ""},
		{`{"error":{"message":"gone","type":"NotFoundError","param":"model","code":404}}`, "model_not_found", "gone", "NotFoundError", "model"},
		{`{"object":"error","message":"flat","type":"at PREFILL"}`, "invalid_request", "flat", "at upstream", ""},
		{`{"error":{"message":"m","type":"t","param":"at PREFILL"}}`, "invalid_request", "m", "t", "at upstream"},
		{`{"error":"` + strings.Repeat("x", 5000) + `"}`, "invalid_request", strings.Repeat("x", 2048), "", ""},
		{`<html>`, "invalid_request", "The engine refused the request.", "", ""},
	} {
		r := newRig(t, setup{})
		text := strings.NewReplacer("PREFILL", r.prefill[0].server.URL, "DECODE", r.decode[0].server.Listener.Addr().String()).Replace(row.body)
		r.prefill[0].next(func(w http.ResponseWriter, _ *http.Request, _ leg) {
			w.WriteHeader(404)
			_, _ = io.WriteString(w, text)
		})
		e := r.wantError(r.turn("", 1, false), 404, row.code)
		if param := e.Param; e.Message != row.message || row.kind != "" && e.Type != row.kind || (row.param == "") != (param == nil) || param != nil && *param != row.param {
			t.Errorf("%.200s: got %+v", row.body, e)
		}
		r.prefill[0].wantLegs(1) // the turn does not go on behind a refusal
		r.decode[0].wantLegs(0)
	}
}

// A prompt that is expected to take longer than the limit of prefill's leg gets more time: the engine has shown how fast it is. The limit of a
// leg that carries a ticket grows as well.
func TestTurn_ThePrefillLimitGrowsWithTheWork(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{cfg: func(c *server.Config) {
		c.PrefillTimeout, c.ReuseTrialTimeout = 9*soonOver/10, 9*soonOver/10
	}})
	r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
	r.engine(r.prefill[0]).LearnPrefill(1, time.Hour, true) // an hour for each token
	r.prefill[0].always(delayed(prefills))
	if p := r.turn("", 1, true); !strings.HasPrefix(p.path(), pathBoth) {
		t.Errorf("got X-KV-Path %q, want %q", p.path(), pathBoth)
	}
	r.wantOK(r.turn("c", 2, true), "hit;")
}
