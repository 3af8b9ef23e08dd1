package fleet

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
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
	r.serves("d0", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" {
			answers(<-status, strings.Repeat("long", 2000))(w, r) // its words don't matter
		}
	})
	round := func(up string) {
		t.Helper()
		r.probeAll(t.Context())
		r.play("d up " + up)
	}
	for _, row := range []struct {
		status int
		up     string
	}{{503, "1"}, {503, "0"}, {200, "1"}} {
		status <- row.status
		round(row.up)
	}
	r.instances[0].BaseURL = "http://127.0.0.1:1" // where nothing listens
	r.Set(r.instances)
	for range health.UnhealthyAfter {
		round("0")
	}
}

func chats(sim *vllmsim.Instance) int { return count(sim, body.Chat.Path()) }

// A new incarnation is probed once, and no probing waits for it.
func TestHealth_EachStartIsProbedForWhatItCanDo(t *testing.T) {
	r := newRig(t)
	sim, e := r.simulate("p0", func(c *vllmsim.Config) { c.PromptTokenIDs = true })
	if r.probeAll(t.Context()); !e.Fresh().Known() || chats(sim) != 0 {
		t.Errorf("got start %q and %d probes where probes are off, want a start and none", e.Fresh().ID(), chats(sim))
	}
	r.cfg.ProbeIDs = true
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

// An engine that keeps the probe waiting must not keep the others from their rounds.
func TestHealth_DoesNotWaitForTheProbe(t *testing.T) {
	leave := make(chan struct{})
	var rounds atomic.Int32
	r := newRig(t)
	r.cfg.ProbeIDs = true
	e := r.serves("d0", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/health":
			rounds.Add(1)
		case "/metrics":
			_, _ = io.WriteString(w, "process_start_time_seconds 1.5e+09\n")
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
	e := r.fake("p0")
	r.play("p0 says start=5")
	for range health.UnhealthyAfter {
		r.probeAll(defective(t.Context()))
	}
	if r.play("p up 0"); e.Current(defective(t.Context())).Known() {
		t.Error("a start is known")
	}
}

// runs runs the fleet until the returned function ends it.
func (r *rig) runs() (end func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan error, 1) // the one result
	go func() { ended <- r.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("Run: %v", err)
		}
	}
}

// New engines are asked when they come, and need not wait for the next round.
func TestRun_AsksNewEnginesAtOnce(t *testing.T) {
	r := newRig(t)
	r.every = time.Hour
	asked := make(chan string, 10)
	come := func(name string) {
		srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			if req.URL.Path == "/health" {
				asked <- name
			}
		}))
		t.Cleanup(srv.Close)
		r.add(upstream.Instance{Name: name, BaseURL: srv.URL, Role: roleOf(name)})
	}
	come("p0")
	end := r.runs()
	if got := <-asked; got != "p0" {
		t.Errorf("the first round asks %s", got)
	}
	come("d0")
	if got := <-asked; got != "d0" {
		t.Errorf("%s is asked when a new engine comes", got)
	}
	end()
}

// plainShape is the shape of a second turn.
const plainShape = `chat;"assistant":s;"user":s;`

// taught runs a round and waits for its lessons.
func (r *rig) taught() {
	r.probeAll(r.t.Context())
	r.lessons.Wait()
}

func teachingRig(t *testing.T) *rig {
	r := newRig(t)
	r.cfg.ProbeIDs, r.cfg.TeachShapes = true, true
	return r
}

func TestTeach_EachIncarnationOfPrefillKnowsShapesBeforeATurn(t *testing.T) {
	r := teachingRig(t)
	sim, e := r.simulate("p0", nil)
	for range 2 {
		r.taught()
		if got := e.Fresh().Parity.Of("sim", plainShape); got != facts.Yes {
			t.Errorf("got %d, want Yes", got)
		}
		if n := e.Live().Shapes; n != 24 {
			t.Errorf("operators see %d shapes, want 24", n)
		}
		before := chats(sim)
		r.taught()
		if chats(sim) != before {
			t.Error("a second round taught it again")
		}
		sim.Restart()
		r.pass(readFor)
	}
	decode, d := r.simulate("d0", nil)
	r.taught()
	d.Fresh().Capability.Probe(t.Context(), body.Chat, "") // waits for the one that the round has begun
	if r.taught(); chats(decode) != 1 {
		t.Errorf("decode got %d chats, want the probe alone", chats(decode))
	}
}

func TestTeach_OnlyAnIdleEngineIsTaught(t *testing.T) {
	for busy, idle := range map[string]string{
		"p0 begins p0": "p0 ends", "p0 hands-back 1": "", "p0 drains": "p0 resumes", "p0 pauses": "pass 1m", "p0 errs": "p0 tells 2", "p0 refuses": "", "p0 tells 1; p0 tells 2": "",
		"p0 has 0 running 1 waiting": "p0 has",
	} {
		r := newRig(t)
		r.play("add p0; tell 1")
		e, i := r.engines["p0"], r.told["p0"]
		if !e.idle(i) {
			t.Fatal("an engine that has nothing to do is not idle")
		}
		if r.play(busy); e.idle(i) {
			t.Errorf("%s: it is idle", busy)
		}
		if idle == "" {
			continue
		}
		if r.play(idle); !e.idle(r.told["p0"]) {
			t.Errorf("%s, %s: it is not idle", busy, idle)
		}
	}
	r := teachingRig(t)
	sim, e := r.simulate("p0", nil)
	r.play("p0 begins p0")
	if r.taught(); chats(sim) > 1 {
		t.Errorf("got %d chats, want the probe alone", chats(sim))
	}
	r.play("p0 ends")
	if r.taught(); e.Fresh().Parity.Of("sim", plainShape) != facts.Yes {
		t.Error("an engine that is idle again is not taught")
	}
}

// The end of the program ends a lesson under way.
func TestTeach_EndsWithTheRounds(t *testing.T) {
	r := teachingRig(t)
	asked := make(chan struct{})
	r.serves("p0", func(w http.ResponseWriter, q *http.Request) {
		raw, _ := io.ReadAll(q.Body)
		switch {
		case q.URL.Path == "/metrics":
			_, _ = io.WriteString(w, "process_start_time_seconds 5\n")
		case q.URL.Path == "/v1/models":
			_, _ = io.WriteString(w, listOf("m"))
		case q.URL.Path == "/tokenize":
			_, _ = io.WriteString(w, `{"count":1,"tokens":[1]}`)
		case strings.HasSuffix(q.URL.Path, "/render"):
			w.WriteHeader(http.StatusNotFound)
		case strings.Contains(string(raw), "kv_transfer_params"):
			answers(http.StatusBadRequest, `{"error":{"message":"bad ids","type":"BadRequestError","param":"kv_transfer_params.prompt_token_ids","code":400}}`)(w, q)
		case q.URL.Path == body.Chat.Path():
			close(asked)
			<-q.Context().Done()
		}
	})
	end := r.runs()
	<-asked
	end()
}
