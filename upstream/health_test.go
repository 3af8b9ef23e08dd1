package upstream

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"carryover/upstream/vllmsim"
)

func TestProber_FollowsTheHealthOfInstances(t *testing.T) {
	status := make(chan int, 1) // one answer at a time
	instance := engine(t, RoleDecode, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/health" {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(<-status)
		_, _ = io.WriteString(w, strings.Repeat("long", 2000)) // its words don't matter
	})
	pool := NewPool(first{}, first{})
	pool.Set([]Instance{*instance})
	client := newTestClient(t, "")
	prober := &Prober{Pool: pool, Client: client, Incarnations: NewIncarnations(client, 2*time.Second)}
	for _, tc := range []struct{ status, up int }{{503, 1}, {503, 0}, {200, 1}} {
		status <- tc.status
		prober.probeAll(t.Context())
		if got := pool.Up(RoleDecode); got != tc.up {
			t.Errorf("after %d: %d up, want %d", tc.status, got, tc.up)
		}
	}
	instance.BaseURL = "http://127.0.0.1:1"
	pool.Set([]Instance{*instance})
	for range unhealthyAfter {
		prober.probeAll(t.Context())
	}
	if got := pool.Up(RoleDecode); got != 0 {
		t.Errorf("nobody listens: %d up, want 0", got)
	}
}

// A new start is probed once, and no probing waits for it.
func TestProber_ProbesWhatEachStartCanDo(t *testing.T) {
	sim, instance := simulate(t, RolePrefill, func(c *vllmsim.Config) { c.PromptTokenIDs = true })
	pool := NewPool(first{}, first{})
	pool.Set([]Instance{*instance})
	incarnations, pass := clocked(t)
	prober := &Prober{Pool: pool, Client: incarnations.client, Incarnations: incarnations, Capability: NewCapability(incarnations.client)}
	before := ""
	for range 2 {
		prober.probeAll(t.Context())
		prober.probeAll(t.Context())
		facts, ok := incarnations.Known(instance)
		if !ok || facts.Incarnation == before {
			t.Fatalf("start %+v is known: %t, want a new one", facts, ok)
		}
		// A turn waits for the probe that was begun.
		if got := prober.Capability.Probe(t.Context(), instance, facts.Incarnation, "Bearer wrong"); got != Yes {
			t.Errorf("got %d, want Yes", got)
		}
		before = facts.Incarnation
		sim.Restart()
		pass(factsFor)
		if _, ok := incarnations.Known(instance); ok {
			t.Error("a reading counts for longer than five seconds")
		}
	}
	chats := 0
	for _, path := range paths(sim) {
		if path == Chat.Path() {
			chats++
		}
	}
	if chats != 2 {
		t.Errorf("got %d probes, want one per start", chats)
	}
}

// An engine that keeps the probe waiting must not keep the prober from its rounds.
func TestProber_DoesNotWaitForTheProbe(t *testing.T) {
	leave := make(chan struct{})
	var rounds atomic.Int32
	instance := engine(t, RoleDecode, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/health":
			rounds.Add(1)
		case "/metrics":
			answerJSON("process_start_time_seconds 1.5e+09\n")(w, r)
		default:
			<-leave
		}
	})
	pool := NewPool(first{}, first{})
	pool.Set([]Instance{*instance})
	client := newTestClient(t, "")
	prober := &Prober{Pool: pool, Client: client, Incarnations: NewIncarnations(client, time.Minute), Capability: NewCapability(client)}
	for range 3 {
		prober.probeAll(t.Context())
	}
	if rounds.Load() != 3 || pool.Up(RoleDecode) != 1 {
		t.Errorf("got %d rounds, %d up, want 3 and 1", rounds.Load(), pool.Up(RoleDecode))
	}
	close(leave)
	if got := prober.Capability.Probe(t.Context(), instance, "1.5e+09", ""); got != No {
		t.Errorf("got %d, want No", got)
	}
}

func TestProber_ADefectIsAFailedReading(t *testing.T) {
	client := newTestClient(t, "")
	client.http.Transport = defect{}
	pool := NewPool(first{}, first{})
	instance := Instance{Role: RolePrefill, Name: "a", BaseURL: "http://a"}
	pool.Set([]Instance{instance})
	prober := &Prober{Pool: pool, Client: client, Incarnations: NewIncarnations(client, time.Minute)}
	for range unhealthyAfter {
		prober.probeAll(t.Context())
	}
	if got := pool.Up(RolePrefill); got != 0 {
		t.Errorf("%d up, want 0", got)
	}
	if _, ok := prober.Incarnations.Current(t.Context(), &instance); ok {
		t.Error("a start is known")
	}
}
