package upstream

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carryover/convcache/clocktest"
	"carryover/upstream/vllmsim"
)

// clocked returns Incarnations whose clock the test moves, and which a slow machine
// cannot run out of time.
func clocked(t *testing.T) (i *Incarnations, pass func(time.Duration)) {
	t.Helper()
	var passed atomic.Int64
	began := time.Now()
	i = NewIncarnations(newTestClient(t, ""), 2*time.Second)
	i.limit = time.Minute
	i.now = func() time.Time { return began.Add(time.Duration(passed.Load())) }
	return i, func(d time.Duration) { passed.Add(int64(d)) }
}

func TestIncarnations_OfSimulatedEngines(t *testing.T) {
	sim, instance := simulate(t, RoleDecode, func(c *vllmsim.Config) { c.BlockSize = 32 })
	incarnations, pass := clocked(t)
	first, ok := incarnations.Current(t.Context(), instance)
	if !ok || first.Incarnation == "" || first.BlockSize != 32 || !first.RecentRead.Equal(incarnations.now()) {
		t.Errorf("got %+v, %t", first, ok)
	}
	sim.Restart()
	if again, ok := incarnations.Current(t.Context(), instance); again != first || !ok {
		t.Errorf("at once: got %+v, %t, want what was read", again, ok)
	}
	pass(factsFor)
	second, ok := incarnations.Current(t.Context(), instance)
	if !ok || second.Incarnation == first.Incarnation {
		t.Errorf("after five seconds: got %+v, %t, want the next start", second, ok)
	}
	if n := len(sim.Requests()); n != 2 {
		t.Errorf("read %d times, want 2", n)
	}
	sim.Restart()
	incarnations.Forget(instance)
	if third, ok := incarnations.Current(t.Context(), instance); !ok || third.Incarnation == second.Incarnation {
		t.Errorf("after Forget: got %+v, %t, want the next start", third, ok)
	}
}

func TestIncarnations_DataParallelEnginesAgreeOnTheBlockSize(t *testing.T) {
	_, instance := simulate(t, RoleDecode, func(c *vllmsim.Config) { c.DPRanks = 3 })
	incarnations, _ := clocked(t)
	if facts, ok := incarnations.Current(t.Context(), instance); !ok || facts.BlockSize != 16 {
		t.Errorf("got %+v, %t, want blocks of 16", facts, ok)
	}
}

func TestIncarnations_RefreshSparesTheWait(t *testing.T) {
	asked := 0
	instance := engine(t, RoleDecode, func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_, _ = io.WriteString(w, "process_start_time_seconds 5\n")
	})
	incarnations, pass := clocked(t)
	for range 3 {
		incarnations.Refresh(t.Context(), instance)
		pass(4 * time.Second)
		if facts, ok := incarnations.Current(t.Context(), instance); !ok || facts.Incarnation != "5" {
			t.Errorf("got %+v, %t", facts, ok)
		}
	}
	if asked != 3 {
		t.Errorf("asked %d times, want 3: by Refresh only", asked)
	}
}

func TestIncarnations_WhoDoesNotTellIsAskedEveryFiveSeconds(t *testing.T) {
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
		asked := 0
		instance := engine(t, RoleDecode, func(w http.ResponseWriter, r *http.Request) {
			asked++
			handler(w, r)
		})
		incarnations, pass := clocked(t)
		for _, want := range []int{1, 1, 2} {
			if facts, ok := incarnations.Current(t.Context(), instance); ok || facts != (Facts{}) || asked != want {
				t.Errorf("%s: got %+v, %t after %d questions, want none after %d", name, facts, ok, asked, want)
			}
			pass(factsFor - time.Duration(asked))
		}
	}
}

// A reading that fails leaves what was read a moment ago, one that shows another
// process does not.
func TestIncarnations_AFailureInBetween(t *testing.T) {
	var answer atomic.Value
	answer.Store("process_start_time_seconds 5\n")
	instance := engine(t, RoleDecode, func(w http.ResponseWriter, _ *http.Request) {
		if text := answer.Load().(string); text != "" {
			_, _ = io.WriteString(w, text)
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
	})
	incarnations, pass := clocked(t)
	incarnations.Refresh(t.Context(), instance)
	answer.Store("")
	pass(3 * time.Second)
	incarnations.Refresh(t.Context(), instance)
	if facts, ok := incarnations.Current(t.Context(), instance); !ok || facts.Incarnation != "5" {
		t.Errorf("3 s after a reading: got %+v, %t, want it", facts, ok)
	}
	pass(3 * time.Second)
	if facts, ok := incarnations.Current(t.Context(), instance); ok {
		t.Errorf("6 s after a reading: got %+v", facts)
	}
	answer.Store("process_start_time_seconds 5\n")
	incarnations.Refresh(t.Context(), instance)
	answer.Store("x 1\n")
	incarnations.Refresh(t.Context(), instance)
	if facts, ok := incarnations.Current(t.Context(), instance); ok {
		t.Errorf("after a reading without start: got %+v", facts)
	}
}

func TestIncarnations_ARefusedReadingForgets(t *testing.T) {
	sim, instance := simulate(t, RoleDecode, nil)
	incarnations, _ := clocked(t)
	incarnations.Refresh(t.Context(), instance)
	if err := sim.Close(); err != nil {
		t.Fatal(err)
	}
	incarnations.client.Close()
	incarnations.Refresh(t.Context(), instance)
	if facts, ok := incarnations.Current(t.Context(), instance); ok {
		t.Errorf("nobody listens: got %+v", facts)
	}
}

// gated is an engine whose metrics wait for the test: each request brings the
// channel that takes its answer.
func gated(t *testing.T) (instance *Instance, entered chan chan<- string) {
	t.Helper()
	entered = make(chan chan<- string)
	instance = engine(t, RoleDecode, func(w http.ResponseWriter, r *http.Request) {
		leave := make(chan string)
		select {
		case entered <- leave:
		case <-r.Context().Done():
			return
		}
		select {
		case start := <-leave:
			_, _ = io.WriteString(w, "process_start_time_seconds "+start+"\n")
		case <-r.Context().Done():
		}
	})
	return instance, entered
}

func TestIncarnations_OneReadingForAll(t *testing.T) {
	instance, entered := gated(t)
	incarnations, _ := clocked(t)
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			if facts, ok := incarnations.Current(t.Context(), instance); !ok || facts.Incarnation != "5" {
				t.Errorf("got %+v, %t", facts, ok)
			}
		})
	}
	leave := <-entered // a second one would wait for ever
	leave <- "5"
	group.Wait()
}

func TestIncarnations_ForgetDiscardsAReadingUnderWay(t *testing.T) {
	instance, entered := gated(t)
	incarnations, _ := clocked(t)
	type result struct {
		facts Facts
		ok    bool
	}
	results := make(chan result, 2) // one each
	current := func() {
		facts, ok := incarnations.Current(t.Context(), instance)
		results <- result{facts, ok}
	}
	go current()
	before := <-entered
	incarnations.Forget(instance)
	go current()
	after := <-entered
	before <- "5"
	if got := <-results; got.ok {
		t.Errorf("read before the connection was refused: got %+v", got.facts)
	}
	after <- "6"
	if got := <-results; !got.ok || got.facts.Incarnation != "6" {
		t.Errorf("read after it: got %+v", got)
	}
	if facts, ok := incarnations.Current(t.Context(), instance); !ok || facts.Incarnation != "6" {
		t.Errorf("from then on: got %+v, %t", facts, ok)
	}
}

func TestIncarnations_ACallerThatLeavesStopsNoReading(t *testing.T) {
	instance, entered := gated(t)
	incarnations, _ := clocked(t)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan bool, 1) // the one result
	go func() {
		_, ok := incarnations.Current(ctx, instance)
		left <- ok
	}()
	leave := <-entered
	cancel()
	if <-left {
		t.Error("a caller that left has facts")
	}
	other := make(chan bool, 1) // the one result
	go func() {
		_, ok := incarnations.Current(t.Context(), instance)
		other <- ok
	}()
	leave <- "5"
	if !<-other {
		t.Error("the reading did not outlive its first caller")
	}
}

func TestIncarnations_AnEngineThatDoesNotAnswerIsLeftAfterTheLimit(t *testing.T) {
	instance := engine(t, RoleDecode, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	incarnations, _ := clocked(t)
	incarnations.limit = 10 * time.Millisecond
	for range 2 {
		if facts, ok := incarnations.Current(t.Context(), instance); ok {
			t.Errorf("got %+v", facts)
		}
	}
}

func TestIncarnations_MemoryIsBounded(t *testing.T) {
	instance := engine(t, RoleDecode, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "process_start_time_seconds 5\n")
	})
	incarnations, _ := clocked(t)
	for i := range maxRemembered {
		incarnations.known[strconv.Itoa(i)] = &alive{}
	}
	if _, ok := incarnations.Current(t.Context(), instance); !ok || len(incarnations.known) != 1 {
		t.Errorf("ok %t, remembers %d, want the last one", ok, len(incarnations.known))
	}
}

// An engine may have been started anew while this machine was suspended.
func TestIncarnations_CountTheTimeThatAMachineWasSuspended(t *testing.T) {
	for start, answer := range map[string]string{"5": "process_start_time_seconds 5\n", "": "x 1\n"} {
		asked := 0
		instance := engine(t, RoleDecode, func(w http.ResponseWriter, _ *http.Request) {
			asked++
			_, _ = io.WriteString(w, answer)
		})
		incarnations, _ := clocked(t)
		awake := incarnations.now()
		incarnations.Refresh(t.Context(), instance)
		incarnations.now = func() time.Time { return clocktest.Apart(t, awake, factsFor) }
		if facts, _ := incarnations.Current(t.Context(), instance); facts.Incarnation != start || asked != 2 {
			t.Errorf("got %+v after %d questions, want start %q after 2", facts, asked, start)
		}
	}
}

// What was last read of an engine is there until it is known to be over.
func TestIncarnations_LastOutlivesWhatCounts(t *testing.T) {
	answer := "process_start_time_seconds 5\n"
	instance := engine(t, RoleDecode, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) })
	incarnations, pass := clocked(t)
	if got := incarnations.Last(instance).Incarnation; got != "" {
		t.Errorf("before any reading: %q", got)
	}
	incarnations.Refresh(t.Context(), instance)
	pass(time.Hour)
	if _, ok := incarnations.Known(instance); ok || incarnations.Last(instance).Incarnation != "5" {
		t.Error("after an hour: want nothing that counts, and the last reading")
	}
	answer = "x 1\n" // it is another process, or does not tell any more
	incarnations.Refresh(t.Context(), instance)
	if got := incarnations.Last(instance).Incarnation; got != "" {
		t.Errorf("of an engine that does not tell: %q", got)
	}
	answer = "process_start_time_seconds 6\n"
	incarnations.Refresh(t.Context(), instance)
	incarnations.Forget(instance)
	if got := incarnations.Last(instance).Incarnation; got != "" {
		t.Errorf("forgotten: %q", got)
	}
}
