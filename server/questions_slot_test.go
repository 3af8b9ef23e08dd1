package server_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"carryover/server"
	"carryover/upstream/fleet"
)

const countPath = "/v1/messages/count_tokens"

// questions are the requests besides turns that reach engines.
func questions() map[string]func(r *rig, header ...string) reply {
	return map[string]func(r *rig, header ...string) reply{
		"count_tokens": func(r *rig, header ...string) reply { return r.sendTo(countPath, ask("", false, "q"), header...) },
		"count_tokens, large": func(r *rig, header ...string) reply {
			return r.sendTo(countPath, ask("", false, strings.Repeat("long ", 20<<10)), header...)
		},
		"models": func(r *rig, header ...string) reply {
			return r.do(context.Background(), http.MethodGet, "/v1/models", nil, header...)
		},
	}
}

// counted is an engine that counts.
var counted = replyBody("application/json", `{"input_tokens":7}`)

// wantRefusal compares status and code of an error; errors of Messages have no code.
func wantRefusal(t *testing.T, p reply, status int, code string) {
	t.Helper()
	got := gjson.Get(p.body, "error.code").String()
	if p.status != status || got != code && gjson.Get(p.body, "type").String() != "error" {
		t.Errorf("got %d %s, want %d %s", p.status, p.body, status, code)
	}
}

// Without a place nothing reaches an engine, and what waits for one is refused as a turn is.
func TestQuestions_WaitForASlotAsTurnsDo(t *testing.T) {
	for name, ask := range questions() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{cfg: func(c *server.Config) { c.MaxStreams = 1; forwards(c) }, fleet: func(c *fleet.Config) { c.AskLimit = patience }})
			asked, gate := make(chan struct{}, 1), make(chan struct{})
			hears := func(act behaviour) behaviour {
				return func(w http.ResponseWriter, q *http.Request, l leg) {
					asked <- struct{}{}
					waits(gate, act)(w, q, l)
				}
			}
			r.prefill[0].counts, r.decode[0].models = hears(counted), hears(listing("m"))
			o := occupy(r)
			p := ask(r)
			wantRefusal(t, p, http.StatusServiceUnavailable, "queue_full")
			wantRetryAfter(t, p, "1")
			if len(asked) != 0 {
				t.Error("an engine was asked without a place")
			}
			o.free()
			r.until(func() bool { return r.server.Open() == 0 })

			answer := make(chan reply, 1)
			go func() { answer <- ask(r) }()
			<-asked
			if n := r.server.Open(); n != 1 {
				t.Errorf("%d places are taken while an engine is asked, want 1", n)
			}
			p = r.turn("", 1, true)
			r.wantError(p, http.StatusServiceUnavailable, "queue_full")
			wantRetryAfter(t, p, "1")
			close(gate)
			if p := <-answer; p.status != http.StatusOK {
				t.Errorf("got %d %s", p.status, p.body)
			}
			r.until(func() bool { return r.server.Open() == 0 })
			r.wantOK(r.turn("", 1, true), "miss;")
		})
	}
}

// They count as their tenant's, and what fails, or leaves, gives its place back.
func TestQuestions_AreTheirTenants(t *testing.T) {
	for name, ask := range questions() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, setup{cfg: func(c *server.Config) { c.MaxPerTenant = 1; forwards(c); byTenant(c) }})
			o := occupy(r, "X-Tenant", "a")
			r.prefill[0].counts = counted
			wantRefusal(t, ask(r, "X-Tenant", "a"), http.StatusTooManyRequests, "tenant_limit")
			if p := ask(r, "X-Tenant", "b"); p.status != http.StatusOK {
				t.Errorf("another tenant: got %d %s", p.status, p.body)
			}
			o.free()
			r.prefill[0].counts, r.decode[0].models, r.prefill[0].models = status(500, "no"), status(500, "no"), status(500, "no")
			for range 3 {
				wantRefusal(t, ask(r, "X-Tenant", "b"), http.StatusBadGateway, "prefill_failed")
			}
			r.until(func() bool { return r.server.Open() == 0 })
		})
	}
}

// The list that is known is told without a place: no engine is asked.
func TestQuestions_AKnownListNeedsNoSlot(t *testing.T) {
	r, _ := serving(t, setup{cfg: func(c *server.Config) { c.MaxStreams = 1 }})
	o := occupy(r)
	if p := r.get("/v1/models"); p.status != http.StatusOK {
		t.Errorf("got %d %s", p.status, p.body)
	}
	o.free()
}
