package fleet

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carryover/convcache/clocktest"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// tellsMetrics is an engine that tells an incarnation, and how often it was asked.
func tellsMetrics(asked *int, text *string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		*asked++
		_, _ = io.WriteString(w, *text)
	}
}

func TestReading_OfSimulatedEngines(t *testing.T) {
	r := newRig(t)
	sim, e := r.simulate(upstream.RoleDecode, func(c *vllmsim.Config) { c.BlockSize = 32 })
	first := e.Current(t.Context())
	if !first.Known() || first.BlockSize() != 32 || first.Engine() != e || !first.Alive(t.Context()) {
		t.Errorf("got start %q, blocks of %d", first.ID(), first.BlockSize())
	}
	if r.pass(readFor - 1); e.Current(t.Context()) != first || len(sim.Requests()) != 1 {
		t.Error("before five seconds have passed it was read again")
	}
	sim.Restart()
	second := e.Current(t.Context())
	if !second.Known() || second.ID() == first.ID() || second == first {
		t.Errorf("after a restart: got %q, want the next start", second.ID())
	}
	if first.Alive(t.Context()) || !second.Alive(t.Context()) {
		t.Error("want the first start over and the second alive")
	}
	if n := len(sim.Requests()); n != 2 {
		t.Errorf("read %d times, want 2", n)
	}
	sim.Restart()
	e.Refused()
	if third := e.Current(t.Context()); !third.Known() || third.ID() == second.ID() {
		t.Errorf("after a refusal: got %q, want the next start", third.ID())
	}
}

func TestReading_DataParallelEnginesAgreeOnTheBlockSize(t *testing.T) {
	_, e := newRig(t).simulate(upstream.RoleDecode, func(c *vllmsim.Config) { c.DPRanks = 3 })
	if s := e.Current(t.Context()); !s.Known() || s.BlockSize() != 16 {
		t.Errorf("got start %q, blocks of %d, want 16", s.ID(), s.BlockSize())
	}
}

func TestReading_RefreshSparesTheWait(t *testing.T) {
	r := newRig(t)
	asked, text := 0, "process_start_time_seconds 5\n"
	e := r.engine(upstream.RoleDecode, tellsMetrics(&asked, &text))
	for range 3 {
		e.Refresh(t.Context())
		r.pass(4 * time.Second)
		if s := e.Current(t.Context()); s.ID() != "5" {
			t.Errorf("got start %q", s.ID())
		}
	}
	if asked != 3 {
		t.Errorf("asked %d times, want 3: by Refresh only", asked)
	}
}

func TestReading_AnEngineThatTellsNothingIsAskedEveryFiveSeconds(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"no start": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x 1\n") },
		"no metrics": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, "process_start_time_seconds 5\n")
		},
		"broken off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, "process_start_time_seconds 5\n")
		},
	} {
		r := newRig(t)
		asked := 0
		e := r.engine(upstream.RoleDecode, func(w http.ResponseWriter, r *http.Request) {
			asked++
			handler(w, r)
		})
		for _, want := range []int{1, 1, 2} {
			if s := e.Current(t.Context()); s.Known() || s.BlockSize() != 0 || asked != want {
				t.Errorf("%s: got start %q after %d questions, want none after %d", name, s.ID(), asked, want)
			}
			r.pass(readFor - time.Duration(asked))
		}
	}
}

// A reading that fails leaves what was read a moment ago, one that shows another
// process does not.
func TestReading_AFailureInBetweenForgetsNothing(t *testing.T) {
	r := newRig(t)
	var answer atomic.Value
	answer.Store("process_start_time_seconds 5\n")
	e := r.engine(upstream.RoleDecode, func(w http.ResponseWriter, _ *http.Request) {
		if text := answer.Load().(string); text != "" {
			_, _ = io.WriteString(w, text)
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
	})
	e.Refresh(t.Context())
	answer.Store("")
	r.pass(3 * time.Second)
	e.Refresh(t.Context())
	if s := e.Current(t.Context()); s.ID() != "5" {
		t.Errorf("3 s after a reading: got %q, want it", s.ID())
	}
	r.pass(3 * time.Second)
	if s := e.Current(t.Context()); s.Known() {
		t.Errorf("6 s after a reading: got %q", s.ID())
	}
	answer.Store("process_start_time_seconds 5\n")
	e.Refresh(t.Context())
	answer.Store("x 1\n")
	e.Refresh(t.Context())
	if s := e.Current(t.Context()); s.Known() {
		t.Errorf("after a reading without start: got %q", s.ID())
	}
}

func TestReading_ARefusedConnectionForgetsTheLast(t *testing.T) {
	r := newRig(t)
	sim, e := r.simulate(upstream.RoleDecode, nil)
	e.Refresh(t.Context())
	if err := sim.Close(); err != nil {
		t.Fatal(err)
	}
	r.cfg.Client.Close()
	e.Refresh(t.Context())
	if s := e.Current(t.Context()); s.Known() {
		t.Errorf("nothing listens: got %q", s.ID())
	}
}

// gated is an engine whose metrics wait for the test: each request brings the
// channel that takes its answer.
func gated(r *rig) (e *Engine, entered chan chan<- string) {
	r.t.Helper()
	entered = make(chan chan<- string)
	e = r.engine(upstream.RoleDecode, func(w http.ResponseWriter, r *http.Request) {
		leave := make(chan string)
		select {
		case entered <- leave:
		case <-r.Context().Done():
			return
		}
		select {
		case incarnation := <-leave:
			_, _ = io.WriteString(w, "process_start_time_seconds "+incarnation+"\n")
		case <-r.Context().Done():
		}
	})
	return e, entered
}

func TestReading_CallersShareOne(t *testing.T) {
	e, entered := gated(newRig(t))
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			if s := e.Current(t.Context()); s.ID() != "5" {
				t.Errorf("got %q", s.ID())
			}
		})
	}
	leave := <-entered // a second one would wait for ever
	leave <- "5"
	group.Wait()
}

func TestReading_ARefusalDiscardsOneUnderWay(t *testing.T) {
	e, entered := gated(newRig(t))
	results := make(chan string, 2) // one each
	current := func() { results <- e.Current(t.Context()).ID() }
	go current()
	before := <-entered
	e.Refused()
	go current()
	after := <-entered
	before <- "5"
	if got := <-results; got != "" {
		t.Errorf("read before the connection was refused: got %q", got)
	}
	after <- "6"
	if got := <-results; got != "6" {
		t.Errorf("read after it: got %q", got)
	}
	if got := e.Current(t.Context()).ID(); got != "6" {
		t.Errorf("from then on: got %q", got)
	}
}

func TestReading_ACallerThatLeavesStopsNone(t *testing.T) {
	e, entered := gated(newRig(t))
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan bool, 1) // the one result
	go func() { left <- e.Current(ctx).Known() }()
	leave := <-entered
	cancel()
	if <-left {
		t.Error("a caller that left has a start")
	}
	other := make(chan bool, 1) // the one result
	go func() { other <- e.Current(t.Context()).Known() }()
	leave <- "5"
	if !<-other {
		t.Error("the reading did not outlive its first caller")
	}
}

func TestReading_AnEngineThatDoesNotAnswerIsLeftAfterTheLimit(t *testing.T) {
	r := newRig(t)
	e := r.engine(upstream.RoleDecode, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	r.cfg.ReadLimit = 10 * time.Millisecond
	for range 2 {
		if s := e.Current(t.Context()); s.Known() {
			t.Errorf("got %q", s.ID())
		}
	}
}

// An engine may have been started anew while this machine was suspended.
func TestReading_CountsTheTimeThatAMachineWasSuspended(t *testing.T) {
	for incarnation, answer := range map[string]string{"5": "process_start_time_seconds 5\n", "": "x 1\n"} {
		r := newRig(t)
		asked := 0
		e := r.engine(upstream.RoleDecode, tellsMetrics(&asked, &answer))
		awake := r.Now()
		e.Refresh(t.Context())
		r.cfg.Now = func() time.Time { return clocktest.Apart(t, awake, readFor) }
		if s := e.Current(t.Context()); s.ID() != incarnation || asked != 2 {
			t.Errorf("got %q after %d questions, want start %q after 2", s.ID(), asked, incarnation)
		}
	}
}

// What was last read of an engine is there until it is known to be over.
func TestReading_LastOutlivesWhatCounts(t *testing.T) {
	r := newRig(t)
	asked, answer := 0, "process_start_time_seconds 5\n"
	e := r.engine(upstream.RoleDecode, tellsMetrics(&asked, &answer))
	if got := e.Last().ID(); got != "" {
		t.Errorf("before any reading: %q", got)
	}
	e.Refresh(t.Context())
	r.pass(time.Hour)
	if e.Fresh().Known() || e.Last().ID() != "5" {
		t.Error("after an hour: want nothing that counts, and the last reading")
	}
	answer = "x 1\n" // it is another process, or does not tell any more
	e.Refresh(t.Context())
	if got := e.Last().ID(); got != "" {
		t.Errorf("of an engine that does not tell: %q", got)
	}
	answer = "process_start_time_seconds 6\n"
	e.Refresh(t.Context())
	e.Refused()
	if got := e.Last().ID(); got != "" {
		t.Errorf("forgotten: %q", got)
	}
}

// Two roles may name one address: an engine that refuses the one has ended for both.
func TestEngine_RefusedCountsForBothRoles(t *testing.T) {
	r := newRig(t)
	p, d := r.add(upstream.RolePrefill, "both", "http://both"), r.add(upstream.RoleDecode, "both", "http://both")
	tells(p, "1")
	alive := tells(d, "1")
	p.Refused()
	if d.Fresh() == alive || p.Fresh().Known() {
		t.Error("the start still counts as read within five seconds, though its process refuses connections")
	}
	if !d.Reachable() {
		t.Error("the other role is down for a connection that was not its own")
	}
	if d.Incarnation("1") != alive || d.Incarnation("2") != nil {
		t.Error("the start that was read last is not found by its id")
	}
}

// An engine that serves others while a stream of ours waits in its line is not silent: its tokens are counted. One that repeats what it has
// counted before is, however well it answers.
func TestReading_TokensForOthersAreASignOfLife(t *testing.T) {
	r := newRig(t)
	asked, text := 0, "process_start_time_seconds 5\nvllm:generation_tokens_total 7\n"
	e := r.engine(upstream.RoleDecode, tellsMetrics(&asked, &text))
	e.Refresh(t.Context())
	wait := e.Health.Wait(time.Hour)
	defer wait.Over()
	for _, row := range []struct{ tokens, want string }{{"7", "up"}, {"9", "up"}, {"12", "up"}, {"12", "up"}, {"12", "open"}} {
		r.pass(4 * time.Second)
		text = "process_start_time_seconds 5\nvllm:generation_tokens_total " + row.tokens + "\n"
		if e.Refresh(t.Context()); e.Live().State != row.want || e.Reachable() != (row.want == "up") {
			t.Errorf("%s tokens: it is %s, want %s", row.tokens, e.Live().State, row.want)
		}
	}
	if _, err := r.Choose(upstream.RoleDecode, Hint{}, nil); !errors.Is(err, upstream.ErrNoInstance) || r.Up(upstream.RoleDecode) != 0 {
		t.Errorf("got %v, want no instance although no other is left; %d up", err, r.Up(upstream.RoleDecode))
	}
	text = "process_start_time_seconds 6\nvllm:generation_tokens_total 0\n"
	if e.Refresh(t.Context()); e.Live().State != "up" {
		t.Errorf("the next process is %s", e.Live().State)
	}
}
