package fleet

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/health"
)

// An engine counts as up once it has answered, and after a connection that was refused once it has answered again: that its time of being
// avoided is over says nothing.
func TestUp_CountsWhatHasAnswered(t *testing.T) {
	r := newRig(t)
	srv := httptest.NewServer(answers(http.StatusOK, "process_start_time_seconds 1\n"))
	t.Cleanup(srv.Close)
	e := r.unheard(upstream.RoleDecode, "engine", srv.URL)
	up := func() int { return r.Up(upstream.RoleDecode) }
	if up() != 0 || r.Started(upstream.RoleDecode) {
		t.Error("an engine that was never asked counts as up")
	}
	for name, answer := range map[string]func(){
		"a probe": func() { r.probeAll(t.Context()) }, "a reading": func() { e.Refresh(t.Context()) }, "a leg": e.Health.Answered,
	} {
		e.Refused()
		for range 10 {
			if up() != 0 {
				t.Fatalf("up after %s without an answer", name)
			}
			r.pass(health.DownFor)
		}
		if answer(); up() != 1 || !r.Started(upstream.RoleDecode) {
			t.Errorf("not up after %s", name)
		}
	}
	e.Refused()
	if r.Started(upstream.RolePrefill) || !r.Started(upstream.RoleDecode) {
		t.Error("what has started once has not any more, or what never has")
	}
}

// New engines are asked when they come, and need not wait for the next round.
func TestRun_AsksNewEnginesAtOnce(t *testing.T) {
	r := newRig(t)
	r.every = time.Hour
	asked := make(chan string, 10)
	serve := func(name string) http.HandlerFunc {
		return func(_ http.ResponseWriter, req *http.Request) {
			if req.URL.Path == "/health" {
				asked <- name
			}
		}
	}
	r.engine(upstream.RolePrefill, serve("old"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1) // the one result
	go func() { ended <- r.Run(ctx) }()
	if got := <-asked; got != "old" {
		t.Errorf("the first round asks %s", got)
	}
	srv := httptest.NewServer(serve("new"))
	t.Cleanup(srv.Close)
	instance, err := upstream.NewInstance(upstream.RoleDecode, "new", srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	r.Set(append(r.instances, instance))
	if got := <-asked; got != "new" {
		t.Errorf("%s is asked when a new engine comes", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
