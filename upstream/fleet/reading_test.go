package fleet

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carryover/convcache/clocktest"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/fleet/health"
	"carryover/upstream/fleet/pairs"
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
	if err := sim.Close(); err != nil {
		t.Fatal(err)
	}
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
	if err := sim.SetFault(vllmsim.Fault{Kind: vllmsim.FaultRefuse}); err != nil {
		t.Fatal(err)
	}
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

func TestLive_IsWhatWasReadLast(t *testing.T) {
	r := newRig(t)
	e := r.fake("d0")
	if got := e.Live(); !got.Read.IsZero() || got.State != "up" || got.Incarnation != "" {
		t.Errorf("before a reading: %+v", got)
	}
	r.play(`d begins d0; d begins d0; d begins d0; d0 says start=5 vllm:num_requests_running{engine="0"}=5 vllm:num_requests_waiting{engine="0"}=2 vllm:kv_cache_usage_perc{engine="0"}=0.5 ` +
		`vllm:cache_config_info{block_size="16",num_gpu_blocks="100"}=1; d0 is-read`)
	got, use := e.Live(), facts.Use{Running: 5, Waiting: 2, Short: 2, Usage: 0.5, KVTokens: 1600}
	if got.State != "up" || got.Incarnation != "5" || got.InFlight != 3 || got.Others != 4 || got.Use != use {
		t.Errorf("got %+v, want three attempts of %+v", got, use)
	}
	wantOthers := func(others, waiting int, usage float64) {
		t.Helper()
		r.play("d picks d0")
		if c := r.seen.candidates["d0"]; c.Others != others || c.Waiting != waiting || c.KVUsage != usage || c.InFlight != 3 {
			t.Errorf("the policy was told %+v", c)
		}
	}
	wantOthers(4, 2, 0.5)
	r.pass(loadFor)
	wantOthers(0, 0, 0)
	r.play("d0 says start=5 vllm:num_requests_running=1; d0 is-read")
	wantOthers(0, 0, 0)       // fewer than are ours
	done := e.BeginHandBack() // which is no attempt, and no request of others
	r.play("d0 says start=5 vllm:num_requests_running=6; d0 is-read")
	wantOthers(2, 0, 0)
	r.play("limit 4; d picks d0") // it takes no turn's place
	done()
	r.play("d0 is-read")
	wantOthers(3, 0, 0)
	r.play("d0 refuses")
	if got := e.Live(); got.State != "down" || got.Incarnation != "" || got.Running != 0 || !got.Read.IsZero() {
		t.Errorf("after a refusal: %+v", got)
	}
}

func TestFleet_TellsOperatorsOfItsEngines(t *testing.T) {
	r := newRig(t)
	var told []string
	r.cfg.Tell = func(sentence string) { told = append(told, sentence) }
	r.play("fake d0; d0 says start=5; d0 is-read; d0 is-read; d0 says start=6; d0 is-read; d0 refuses; d0 refuses; d0 answers; d0 fails 5; add p0; set p0; set p0")
	want := []string{
		"Decode instance d0 was restarted: what it held for tickets, and in its prefix cache, is gone.", "Decode instance d0 is down: refuses connections.",
		"Decode instance d0 answers again.", "Decode instance d0 opens its circuit for 1s: 5 legs in a row have failed, the last with broken.",
		"Instances were added: prefill p0; removed: none.", "Instances were added: none; removed: decode d0.",
	}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

// The same id is the same incarnation, whatever was forgotten in between; its block size may become known later.
func TestIncarnation_TheSameIDIsTheSameIncarnation(t *testing.T) {
	r := newRig(t)
	e := r.fake("d0")
	r.play("d0 says start=5; d0 current 5")
	s := e.Fresh()
	s.PlugIn.Learn(true)
	r.play(`d0 says start=5 vllm:cache_config_info{block_size="16"}=1; d0 is-read`)
	if e.Fresh() != s || s.BlockSize() != 16 {
		t.Errorf("read again: got start %q, blocks of %d", e.Fresh().ID(), s.BlockSize())
	}
	e.Refused()
	if e.Fresh() == s || e.Last() == s {
		t.Error("after a refusal the start is known without a reading")
	}
	if e.Current(t.Context()) != s || s.PlugIn.Found() != facts.Yes {
		t.Error("after a refusal: got another start, want the same")
	}
	r.play("d0 says start=6; d0 is-read")
	if next := e.Fresh(); next == s || next.PlugIn.Found() != facts.Unknown || next.BlockSize() != 0 {
		t.Error("what is known of a start is known of the next one")
	}
}

// Nothing of one that is not known could be told from another one's.
func TestIncarnation_UnknownIsEqualToNothing(t *testing.T) {
	r := newRig(t)
	r.play("add p0 d0; d0 tells 1")
	decode, blank := r.told["d0"], r.engines["p0"].Fresh()
	if blank.Known() || blank.ID() != "" || blank.Alive(t.Context()) {
		t.Error("want one that is not known")
	}
	none := blank.PairWith(decode)
	if none != nil || decode.PairWith(blank) != nil || blank.PairWith(blank) != nil || blank.PairWith(nil) != nil || decode.PairWith(nil) != nil {
		t.Error("it has a pair")
	}
	none.ExchangedKV() // which does nothing
	none.ReleaseFailed(true)
	if pause, resumed := none.End(pairs.Answered, ""); pause != 0 || resumed || none.Releases() || none.CarriesReleases() || none.Begin("") != pairs.NoReuse {
		t.Error("no pair has something to give")
	}
	blank.PlugIn.Learn(true)
	if got := blank.Parity.Learn("", "m", "f", true); got != facts.Unknown || blank.PlugIn.Found() != facts.Unknown || blank.Parity.Of("m", "f") != facts.Unknown {
		t.Error("something was learnt of it")
	}
	if blank.Capability.Probe(t.Context(), body.Chat, "") != facts.Unknown {
		t.Error("something was found out of it")
	}
}

// An engine that tells nothing has habits all the same, and the same incarnation for as long.
func TestIncarnation_HabitsOfAnEngineThatTellsNothing(t *testing.T) {
	e := newRig(t).named("d0")[0]
	for range facts.SilentAfter - 1 {
		if e.Fresh().Silence.SentNothing() {
			t.Error("silent too early")
		}
	}
	if !e.Last().Silence.SentNothing() || !e.Fresh().Silence.Silent() {
		t.Error("want a silent start")
	}
	e.LearnPrefill(1000, time.Second, false)
	e.AnswerIDs.Foreign("leg", "chatcmpl-leg")
	next := tells(e, "1")
	e.Refused()
	for _, i := range []*Incarnation{next, e.Fresh()} { // which is not known any more
		if of := i.Engine(); i.Silence.Silent() || of.Expects(2000) != 2*time.Second || !of.AnswerIDs.Foreign("leg", "chatcmpl-other") {
			t.Errorf("start %q: want the pace and the echo of the one before, and no silence", i.ID())
		}
	}
}

// Each change of what an engine's start is worth is told once.
func TestIncarnation_AJudgmentIsOfOneIncarnation(t *testing.T) {
	e := newRig(t).named("d0")[0]
	one, two, blank := tells(e, "1"), newIncarnation(e, "2"), newIncarnation(e, "")
	for n, row := range []struct {
		incarnation *Incarnation
		why         string
		want        bool
	}{
		{one, "", true}, {one, "", false}, {one, "probe", true}, {one, "probe", false}, {one, "", true},
		{two, "", true}, {blank, "start", true}, {blank, "start", false}, {two, "", true},
	} {
		if got := row.incarnation.Judge(row.why); got != row.want {
			t.Errorf("judgment %d: got %t, want %t", n, got, row.want)
		}
	}
}

// An engine counts as up once it has answered, and after a connection that was refused once it has answered again: that its time of being
// avoided is over says nothing.
func TestUp_CountsWhatHasAnswered(t *testing.T) {
	r := newRig(t)
	srv := httptest.NewServer(answers(http.StatusOK, "process_start_time_seconds 1\n"))
	t.Cleanup(srv.Close)
	e := r.add(upstream.Instance{Name: "d0", BaseURL: srv.URL, Role: upstream.RoleDecode})
	if r.play("d up 0"); r.Started(upstream.RoleDecode) {
		t.Error("an engine that was never asked has started")
	}
	for name, answer := range map[string]func(){
		"a probe": func() { r.probeAll(t.Context()) }, "a reading": func() { e.Refresh(t.Context()) }, "a leg": e.Health.Answered,
	} {
		r.play("d0 refuses; d up 0; pass 2s; d up 0; pass 1h; d up 0")
		if answer(); r.Up(upstream.RoleDecode) != 1 || !r.Started(upstream.RoleDecode) {
			t.Errorf("not up after %s", name)
		}
	}
	r.play("d0 refuses; d up 0")
	if r.Started(upstream.RolePrefill) || !r.Started(upstream.RoleDecode) {
		t.Error("what has started once has not any more, or what never has")
	}
}

// An engine that says whether it is paused is asked, and counts as paused no longer than it is.
func TestPaused_IsAskedWhetherItIsStill(t *testing.T) {
	for name, row := range map[string]struct {
		answer       http.HandlerFunc
		still, later bool // at once, and when it is avoided no more
	}{
		"still paused":   {answers(http.StatusOK, `{"is_paused":true}`), true, true},
		"goes on":        {answers(http.StatusOK, `{"is_paused":false}`), false, false},
		"does not tell":  {answers(http.StatusNotFound, `{}`), true, false},
		"tells nonsense": {answers(http.StatusOK, `{"is_paused":null}`), true, false},
	} {
		r := newRig(t)
		asked := 0
		e := r.serves("d0", func(w http.ResponseWriter, q *http.Request) {
			asked++
			row.answer(w, q)
		})
		if StillPaused(t.Context(), e) || asked != 0 {
			t.Errorf("%s: an engine that has refused nothing is asked, or paused", name)
		}
		if e.Health.Paused(); StillPaused(t.Context(), e) != row.still || e.Health.Pauses() != row.still || asked != 1 {
			t.Errorf("%s: behind its refusal: paused %t, asked %d times; want %t and once", name, e.Health.Pauses(), asked, row.still)
		}
		if r.pass(health.DownFor); StillPaused(t.Context(), e) != row.later || e.Health.Pauses() != row.later {
			t.Errorf("%s: later: paused %t, want %t", name, e.Health.Pauses(), row.later)
		}
	}
}

// Idle connections do not outlive what they were made for: behind the name of an engine that went down may be another.
func TestFleet_DropsIdleConnectionsWhenAnEngineGoes(t *testing.T) {
	for _, goes := range []string{"d0 refuses", "d0 ill; d0 ill", "set p0"} {
		var made atomic.Int32
		srv := httptest.NewUnstartedServer(answers(http.StatusOK, ""))
		srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				made.Add(1)
			}
		}
		srv.Start()
		t.Cleanup(srv.Close)
		r := newRig(t)
		e := r.at("p0", srv.URL)
		r.play("add d0")
		for n, then := range []string{"pass 0s", goes, "pass 0s"} {
			e.healthy(t.Context())
			if got := made.Load(); got != int32(1+n/2) {
				t.Errorf("%s, probe %d: %d connections, want one that is used again, and a new one behind it", goes, n, got)
			}
			r.play(then)
		}
	}
}
