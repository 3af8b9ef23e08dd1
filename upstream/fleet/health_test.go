package fleet

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/fleet/health"
	"carryover/upstream/vllmsim"
)

func TestHealth_OfEnginesIsFollowed(t *testing.T) {
	r := newRig(t)
	status := make(chan int, 1) // one answer at a time
	e := r.engine(upstream.RoleDecode, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/health" {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(<-status)
		_, _ = io.WriteString(w, strings.Repeat("long", 2000)) // its words don't matter
	})
	for _, tc := range []struct{ status, up int }{{503, 1}, {503, 0}, {200, 1}} {
		status <- tc.status
		r.probeAll(t.Context())
		if got := r.Up(upstream.RoleDecode); got != tc.up {
			t.Errorf("after %d: %d up, want %d", tc.status, got, tc.up)
		}
	}
	instance := *e.Instance()
	instance.BaseURL = "http://127.0.0.1:1"
	r.Set([]upstream.Instance{instance})
	for range health.UnhealthyAfter {
		r.probeAll(t.Context())
	}
	if got := r.Up(upstream.RoleDecode); got != 0 {
		t.Errorf("nothing listens: %d up, want 0", got)
	}
}

func chats(sim *vllmsim.Instance) (n int) {
	for _, path := range paths(sim) {
		if path == body.Chat.Path() {
			n++
		}
	}
	return n
}

// A new incarnation is probed once, and no probing waits for it.
func TestHealth_EachStartIsProbedForWhatItCanDo(t *testing.T) {
	r := newRig(t)
	r.cfg.ProbeIDs = true
	sim, e := r.simulate(upstream.RolePrefill, func(c *vllmsim.Config) { c.PromptTokenIDs = true })
	before := ""
	for range 2 {
		r.probeAll(t.Context())
		r.probeAll(t.Context())
		s := e.Fresh()
		if !s.Known() || s.ID() == before {
			t.Fatalf("got start %q, want a new one that is known", s.ID())
		}
		// A turn waits for the probe that was begun.
		if got := s.Capability.Probe(t.Context(), body.Chat, "Bearer wrong"); got != facts.Yes {
			t.Errorf("got %d, want Yes", got)
		}
		before = s.ID()
		sim.Restart()
		r.pass(readFor)
		if e.Fresh().Known() {
			t.Error("a reading counts for longer than five seconds")
		}
	}
	if n := chats(sim); n != 2 {
		t.Errorf("got %d probes, want one per start", n)
	}
}

func TestHealth_NothingIsProbedForIDsWhereThatIsOff(t *testing.T) {
	r := newRig(t)
	sim, e := r.simulate(upstream.RolePrefill, nil)
	r.probeAll(t.Context())
	if !e.Fresh().Known() || chats(sim) != 0 {
		t.Errorf("got start %q and %d probes, want a start and none", e.Fresh().ID(), chats(sim))
	}
}

// An engine that keeps the probe waiting must not keep the others from their rounds.
func TestHealth_DoesNotWaitForTheProbe(t *testing.T) {
	leave := make(chan struct{})
	var rounds atomic.Int32
	r := newRig(t)
	r.cfg.ProbeIDs = true
	e := r.engine(upstream.RoleDecode, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/health":
			rounds.Add(1)
		case "/metrics":
			answerJSON("process_start_time_seconds 1.5e+09\n")(w, r)
		default:
			<-leave
		}
	})
	for range 3 {
		r.probeAll(t.Context())
	}
	if rounds.Load() != 3 || r.Up(upstream.RoleDecode) != 1 {
		t.Errorf("got %d rounds, %d up, want 3 and 1", rounds.Load(), r.Up(upstream.RoleDecode))
	}
	close(leave)
	if got := e.Fresh().Capability.Probe(t.Context(), body.Chat, ""); got != facts.No || e.Fresh().ID() != "1.5e+09" {
		t.Errorf("got %d of start %q, want No", got, e.Fresh().ID())
	}
}

func TestHealth_ADefectIsAFailedReading(t *testing.T) {
	r := newRig(t)
	e := r.engine(upstream.RolePrefill, answers(200, "process_start_time_seconds 5\n"))
	for range health.UnhealthyAfter {
		r.probeAll(defective(t.Context()))
	}
	if got := r.Up(upstream.RolePrefill); got != 0 {
		t.Errorf("%d up, want 0", got)
	}
	if s := e.Current(defective(t.Context())); s.Known() {
		t.Error("a start is known")
	}
}

func TestRun_ProbesAtOnceAndEndsWithItsContext(t *testing.T) {
	r := newRig(t)
	asked := make(chan struct{}, 1) // the first
	r.engine(upstream.RolePrefill, func(_ http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/health" {
			select {
			case asked <- struct{}{}:
			default:
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	ended := make(chan error, 1) // the one result
	go func() { ended <- r.Run(ctx) }()
	<-asked
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("got %v, want nil", err)
	}
}
