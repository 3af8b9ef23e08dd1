package fleet

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet/facts"
)

// plainShape is the shape of a second turn.
const plainShape = `chat;"assistant":s;"user":s;`

// taught runs a round and waits for its lessons.
func (r *rig) taught() {
	r.probeAll(r.t.Context())
	r.lessons.Wait()
}

func (r *rig) teaching() *rig {
	r.cfg.ProbeIDs, r.cfg.TeachShapes = true, true
	return r
}

func TestTeach_EachIncarnationOfPrefillKnowsShapesBeforeATurn(t *testing.T) {
	r := newRig(t).teaching()
	sim, e := r.simulate(upstream.RolePrefill, nil)
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
}

func TestTeach_DecodeIsNotTaught(t *testing.T) {
	r := newRig(t).teaching()
	sim, e := r.simulate(upstream.RoleDecode, nil)
	r.taught()
	e.Fresh().Capability.Probe(t.Context(), body.Chat, "") // waits for the one that the round has begun
	r.taught()
	if n := chats(sim); n != 1 {
		t.Errorf("got %d chats, want the probe alone", n)
	}
}

func TestTeach_OnlyAnIdleEngineIsTaught(t *testing.T) {
	for name, change := range map[string]func(r *rig, e *Engine) (undo func()){
		"it has a turn": func(_ *rig, e *Engine) func() {
			n := e.begin(1)
			return func() { e.end(n, 1) }
		},
		"it hands back": func(_ *rig, e *Engine) func() {
			e.handBacks.Add(1)
			return func() { e.handBacks.Add(-1) }
		},
		"it is drained": func(_ *rig, e *Engine) func() {
			e.Health.SetDrain(true)
			return func() { e.Health.SetDrain(false) }
		},
		"it is paused": func(r *rig, e *Engine) func() {
			e.Health.Paused()
			return func() { r.pass(time.Minute) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t).teaching()
			sim, e := r.simulate(upstream.RolePrefill, nil)
			undo := change(r, e)
			r.taught()
			if n := chats(sim); n > 1 {
				t.Errorf("got %d chats, want the probe alone", n)
			}
			undo()
			r.taught()
			if got := e.Fresh().Parity.Of("sim", plainShape); got != facts.Yes {
				t.Errorf("afterwards: got %d, want Yes", got)
			}
		})
	}
}

func TestTeach_RequestsThatWaitAndQuarantinesKeepLessonsAway(t *testing.T) {
	r := newRig(t).teaching()
	e := r.engine(upstream.RolePrefill, answers(http.StatusOK, "process_start_time_seconds 5\nvllm:num_requests_waiting 1\n"))
	e.Refresh(t.Context())
	if e.idle(e.Fresh()) {
		t.Error("an engine whose requests wait is idle")
	}
	other, _ := r.incarnations()
	if !other.engine.idle(other) {
		t.Fatal("an engine that has nothing to do is not idle")
	}
	other.Quarantine()
	if other.engine.idle(other) {
		t.Error("a quarantined engine is idle")
	}
	next := tells(other.engine, "2")
	if other.engine.idle(other) || !other.engine.idle(next) {
		t.Error("lessons go to an incarnation that is over, or not to the next")
	}
	other.engine.Refused()
	if other.engine.idle(next) {
		t.Error("an engine that is down is idle")
	}
}

// The end of the program ends a lesson under way.
func TestTeach_EndsWithTheRounds(t *testing.T) {
	r := newRig(t).teaching()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	asked := make(chan struct{})
	r.engine(upstream.RolePrefill, func(w http.ResponseWriter, q *http.Request) {
		raw, _ := io.ReadAll(q.Body)
		switch {
		case q.URL.Path == "/metrics":
			_, _ = io.WriteString(w, "process_start_time_seconds 5\n")
		case q.URL.Path == "/v1/models":
			answerJSON(listOf("m"))(w, q)
		case q.URL.Path == "/tokenize":
			answerJSON(`{"count":1,"tokens":[1]}`)(w, q)
		case strings.HasSuffix(q.URL.Path, "/render"):
			w.WriteHeader(http.StatusNotFound)
		case strings.Contains(string(raw), "kv_transfer_params"):
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"bad ids","type":"BadRequestError","param":"kv_transfer_params.prompt_token_ids","code":400}}`)
		case q.URL.Path == body.Chat.Path():
			close(asked)
			<-q.Context().Done()
		}
	})
	over := make(chan error, 1)
	go func() { over <- r.Run(ctx) }()
	<-asked
	end()
	if err := <-over; err != nil {
		t.Errorf("run: %v", err)
	}
}
