package fleet

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carryover/convcache/clocktest"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

func TestReading(t *testing.T) {
	const breaking = "fake d0; d0 says start=1; d0 current 1; d0 says start=2; d0 current 1; d0 asked 1;"
	scripts{
		"Refresh spares the wait": "fake d0; d0 says start=5; d0 is-read; pass 4s; d0 current 5; d0 is-read; pass 4s; d0 current 5; d0 asked 2",
		// An engine that tells nothing is asked every five seconds.
		"no start":   "fake d0; d0 says x=1; d0 current; d0 asked 1; pass 4999ms; d0 current; d0 asked 1; pass 1ms; d0 current; d0 asked 2",
		"no metrics": "fake d0; d0 says start=5 status=404; d0 current; d0 asked 1; pass 4999ms; d0 current; d0 asked 1; pass 1ms; d0 current; d0 asked 2",
		"broken off": "fake d0; d0 says start=5 Content-Length=1000; d0 current; d0 asked 1; pass 4999ms; d0 current; d0 asked 1; pass 1ms; d0 current; d0 asked 2",
		// A reading that fails leaves what was read a moment ago, one that shows another process does not.
		"a failure in between": "fake d0; d0 says start=5; d0 is-read; d0 says status=500; pass 3s; d0 is-read; d0 current 5; pass 3s; d0 current;" +
			"d0 says start=5; d0 is-read; d0 says x=1; d0 is-read; d0 current",
		"the last outlives what counts": "fake d0; d0 last; d0 says start=5; d0 is-read; pass 1h; d0 current-by-Fresh; d0 last 5; d0 says x=1; d0 is-read; d0 last;" +
			"d0 says start=6; d0 is-read; d0 refuses; d0 last",
		// It is read for each turn, and no oftener.
		"an engine that keeps no connections": "fake d0; d0 says start=5 Connection=close; d0 current 5; d0 asked 1; pass 1ms; d0 current 5; d0 asked 2; pass 1ms; d0 current 5; d0 asked 3;" +
			"d0 current-by-Fresh 5; d0 asked 3",
		// Another process may be there once a connection was refused or has ended.
		"a leg that breaks":          breaking + "d0 breaks; d0 current 2",
		"a refusal":                  breaking + "d0 refuses; d0 current 2",
		"a break, as the client saw": breaking + "d0 is-broken; d0 current 2",
		"a break serves picks":       "add d0; tell 1; d0 breaks; d0.1 is shown; d0 current-by-Fresh",
		"tokens for others are a sign of life": "fake d0; d0 says start=5 vllm:generation_tokens_total=7; d0 is-read; d0 waits;" + again("7", "up") + again("9", "up") + again("12", "up") +
			again("12", "up") + again("12", "open") + "d0 not reachable; d picks none; d up 0; d0 says start=6 vllm:generation_tokens_total=0; d0 is-read; d0 is up",
	}.run(t)
}

func again(tokens, want string) string {
	return "pass 4s; d0 says start=5 vllm:generation_tokens_total=" + tokens + "; d0 is-read; d0 is " + want + ";"
}

func TestReading_OfSimulatedEngines(t *testing.T) {
	r := newRig(t)
	sim, e := r.simulate("d0", func(c *vllmsim.Config) { c.BlockSize, c.EngineID = 32, "decode-0" })
	read := func(n int) *Incarnation {
		t.Helper()
		i := e.Current(t.Context())
		if got := count(sim, "/metrics"); !i.Known() || i.BlockSize() != 32 || i.Engine() != e || !i.Alive(t.Context()) || got != n {
			t.Errorf("got start %q, blocks of %d, after %d readings, want %d", i.ID(), i.BlockSize(), got, n)
		}
		return i
	}
	if e.Holder(t.Context()).Known() || len(sim.Requests()) != 0 {
		t.Error("an engine of which nothing was read is asked for what it holds")
	}
	first := read(1)
	for range 10 { // while some connection is open, turns wait for no reading
		r.pass(readFor/10 - 1)
		if _, _, err := r.cfg.Client.Fetch(t.Context(), e.Instance(), "/version", "", 1<<10); err != nil {
			t.Fatal(err)
		}
		if read(1) != first {
			t.Fatal("the start is not the one that was read")
		}
	}
	if r.pass(time.Hour); e.Holder(t.Context()) != first {
		t.Error("what holds its blocks is asked for though a connection from before is open")
	}
	sim.Restart()
	second := read(2)
	r.cfg.Client.Close() // a process that ends closes its connections: where none was open, only its start tells that another one answers
	sim.Restart()
	r.pass(time.Millisecond)
	if first.Alive(t.Context()) || second.Alive(t.Context()) {
		t.Error("the starts of before are alive")
	}
	third := read(3)
	r.cfg.Client.Close()
	sim.Restart()
	r.pass(time.Millisecond)
	if fourth := e.Holder(t.Context()); fourth == third || fourth != read(4) {
		t.Errorf("start %q holds its blocks, want the next one", fourth.ID())
	}
	must(t, sim.Close())
	r.cfg.Client.Close()
	e.Refresh(t.Context())
	r.play("d0 current")
	sim, e = r.simulate("d1", func(c *vllmsim.Config) { c.DPRanks, c.BlockSize = 3, 32 })
	read(1)
	r.add(upstream.Instance{Role: upstream.RoleDecode, Name: "d7", BaseURL: sim.URL(), Rank: 7, Ranked: true})
	r.play("d7 is-read")
	if live := r.engines["d7"].Live(); live.KVTokens != 0 || live.Read.IsZero() {
		t.Errorf("a rank that the server does not have: %+v", live)
	}
}

// gated is an engine whose metrics wait for the test: each request brings the channel that takes its answer.
func gated(r *rig) (e *Engine, entered chan chan<- string) {
	entered = make(chan chan<- string)
	e = r.serves("d0", func(w http.ResponseWriter, r *http.Request) {
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
	known := make(chan bool, 1) // one result at a time
	go func() { known <- e.Current(ctx).Known() }()
	leave := <-entered
	cancel()
	if <-known {
		t.Error("a caller that left has a start")
	}
	go func() { known <- e.Current(t.Context()).Known() }()
	leave <- "5"
	if !<-known {
		t.Error("the reading did not outlive its first caller")
	}
}

func TestReading_AnEngineThatDoesNotAnswerIsLeftAfterTheLimit(t *testing.T) {
	r := newRig(t)
	r.serves("d0", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	r.cfg.ReadLimit = 10 * time.Millisecond
	r.play("d0 current; d0 current")
}

// An engine may have been started anew while this machine was suspended.
func TestReading_CountsTheTimeThatAMachineWasSuspended(t *testing.T) {
	for says, want := range map[string]string{"start=5": "5", "x=1": ""} {
		r := newRig(t)
		awake := r.Now()
		r.play("fake d0; d0 says " + says + "; d0 is-read")
		r.cfg.Now = func() time.Time { return clocktest.Apart(t, awake, readFor) }
		r.play("d0 current " + want + "; d0 asked 2")
	}
}

// A reading that is overtaken by a break counts for nothing. It is made again, so that the turn that asks is not without a start.
func TestReading_IsMadeAgainWhenABreakOvertakesIt(t *testing.T) {
	for breaks, want := range map[int32]string{2: "1", maxReadings: ""} {
		r := newRig(t)
		var asked atomic.Int32
		r.serves("d0", func(w http.ResponseWriter, _ *http.Request) {
			if asked.Add(1) <= breaks {
				r.play("d0 breaks")
			}
			_, _ = io.WriteString(w, "process_start_time_seconds 1\n")
		})
		if r.play("d0 current " + want); asked.Load() != maxReadings {
			t.Errorf("%d breaks: %d readings, want %d", breaks, asked.Load(), maxReadings)
		}
	}
}

// The end of a connection that is kept is seen when a ticket is about to be used, though no leg has told of it.
func TestReading_CountsNoMoreWhenAKeptConnectionHasEnded(t *testing.T) {
	r := newRig(t)
	start := "1"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "process_start_time_seconds "+start+"\n")
	}))
	defer srv.Close()
	e := r.at("d0", srv.URL)
	first := e.Current(t.Context())
	if !first.Alive(t.Context()) {
		t.Fatal("it is not alive")
	}
	start = "2"
	srv.CloseClientConnections() // returns when they are closed, which on loopback has arrived
	if first.Alive(t.Context()) {
		t.Error("the start of before is alive")
	}
	r.play("d0 current 2")
}

// An attempt begins with what was read last of an engine that does not answer: it may go to another one.
func TestPin_KeepsWhatWasReadOfAnEngineThatDoesNotAnswer(t *testing.T) {
	r := newRig(t)
	_, p := r.simulate("p0", nil)
	sim, d := r.simulate("d0", nil)
	prefill, decode := Pin(t.Context(), p, d)
	if !prefill.Known() || !decode.Known() {
		t.Fatalf("got starts %q and %q, want both", prefill.ID(), decode.ID())
	}
	must(t, sim.SetFault(vllmsim.Fault{Kind: vllmsim.FaultRefuse}))
	r.cfg.Client.Close()
	r.pass(time.Millisecond)
	if again, last := Pin(t.Context(), p, d); again != prefill || last != decode {
		t.Errorf("got starts %q and %q, want those of before", again.ID(), last.ID())
	}
	if decode.Alive(t.Context()) {
		t.Error("a start whose engine refuses connections counts as alive")
	}
}

// Both engines are read at the same time, so that a turn waits for one reading.
func TestPin_ReadsBothAtOnce(t *testing.T) {
	r := newRig(t)
	var both sync.WaitGroup
	both.Add(2)
	meet := func(w http.ResponseWriter, _ *http.Request) {
		both.Done()
		both.Wait()
		_, _ = io.WriteString(w, "process_start_time_seconds 5\n")
	}
	p, d := Pin(t.Context(), r.serves("p0", meet), r.serves("d0", meet))
	if p.ID() != "5" || d.ID() != "5" {
		t.Errorf("got starts %q and %q", p.ID(), d.ID())
	}
}

// The same id is the same incarnation, whatever was forgotten in between; its block size may become known later.
// Nothing of one that is not known could be told from another one's.
// An engine that tells nothing has habits all the same, and the same incarnation for as long.
// Each change of what an engine's start is worth is told once.
// An engine counts as up once it has answered, and after a connection that was refused once it has answered again: that its time of being
// avoided is over says nothing.
// An engine that says whether it is paused is asked, and counts as paused no longer than it is.
// Idle connections do not outlive what they were made for: behind the name of an engine that went down may be another.
