package fleet

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/health"
)

// broken is a leg that failed by its engine's fault.
func broken() *upstream.LegError { return &upstream.LegError{Kind: upstream.Broken, Sent: true} }

// open opens an engine's circuit.
func open(e *Engine) {
	for range health.FailuresToOpen {
		e.Health.Failed(broken())
	}
}

// journal is a log that tests read.
type journal struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// count returns how many lines have all of the words.
func (j *journal) count(words ...string) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.Lines(j.text.String()) {
		all := true
		for _, word := range words {
			all = all && strings.Contains(line, word)
		}
		if all {
			n++
		}
	}
	return n
}

// logs has the fleet log to a journal.
func (r *rig) logs() *journal {
	j := &journal{}
	r.cfg.Logger = slog.New(slog.NewTextHandler(j, nil))
	return j
}

// attempt picks a prefill engine as a turn does.
func (r *rig) attempt(exclude ...string) (name string, done func()) {
	r.t.Helper()
	e, done, err := r.Pick(upstream.RolePrefill, Hint{AllowQuarantined: true}, excluding(exclude...))
	if err != nil {
		r.t.Fatal(err)
	}
	return e.Name, done
}

func TestCircuit_AFailingEngineIsAvoidedAndTriedByOneTurnAtATime(t *testing.T) {
	r := newRig(t)
	book := r.logs()
	a := r.named(upstream.RolePrefill, "a", "b")[0]
	for range health.FailuresToOpen - 1 {
		a.Health.Failed(broken())
	}
	if got := r.pick(); got != "a" {
		t.Fatalf("picked %s after four failures, want a", got)
	}
	a.Health.Failed(&upstream.LegError{Kind: upstream.Status, Status: 502})
	if got := r.pick(); got != "b" || r.Up(upstream.RolePrefill) != 1 {
		t.Errorf("picked %s after five failures, %d up, want b and 1", got, r.Up(upstream.RolePrefill))
	}
	if got := r.pick("b"); got != "a" {
		t.Errorf("picked %s with b excluded, want a although its circuit is open", got)
	}
	r.pass(health.OpenFirst)
	first, done := r.attempt()
	second, doneToo := r.attempt()
	if first != "a" || second != "b" || r.Up(upstream.RolePrefill) != 2 {
		t.Errorf("picked %s and %s, %d up, want one turn to try a, which counts as up", first, second, r.Up(upstream.RolePrefill))
	}
	doneToo()
	done() // and has shown nothing: its client has gone
	if got := r.pick(); got != "a" {
		t.Errorf("picked %s after a trial that showed nothing, want a", got)
	}
	a.Health.Served()
	open(a)
	if book.count("level=WARN", "engine opens its circuit", "role=prefill", "instance=a", "failures=5", `last="status 502"`, "tried_again_in=1s") != 1 ||
		book.count("level=WARN", "opens its circuit", "last=broken", "tried_again_in=1s") != 1 || book.count("level=INFO", "engine closes its circuit") != 1 {
		t.Errorf("the log has\n%s", book.text.String())
	}
}

// One of many that look at once gets to try.
func TestCircuit_OneOfManyTries(t *testing.T) {
	r := newRig(t)
	a := r.named(upstream.RolePrefill, "a", "b")[0]
	open(a)
	r.pass(health.OpenFirst)
	var group sync.WaitGroup
	picked := make(chan string, 50) // all of them
	for range cap(picked) {
		group.Go(func() {
			e, _, err := r.Pick(upstream.RolePrefill, Hint{}, nil)
			if err != nil {
				t.Error(err)
				return
			}
			picked <- e.Name
		})
	}
	group.Wait()
	close(picked)
	tries := 0
	for name := range picked {
		if name == "a" {
			tries++
		}
	}
	if tries != 1 {
		t.Errorf("%d turns try a half-open circuit, want 1", tries)
	}
}

// An engine whose health is fine and whose completions fail is what a circuit is for.
func TestCircuit_GoodHealthDoesNotCloseIt(t *testing.T) {
	r := newRig(t)
	a := r.named(upstream.RolePrefill, "a")[0]
	open(a)
	a.Refused()
	a.Health.Probed(true)
	if a.up() || !a.Reachable() {
		t.Errorf("up %t, reachable %t, want an open circuit of an engine that answers", a.up(), a.Reachable())
	}
	r.pass(health.OpenFirst)
	a.Health.Probed(true)
	if state, _ := a.state(); state != "half_open" || !a.up() {
		t.Errorf("it is %s, want half_open", state)
	}
}

// Which is tried first when none is up: an engine that answers rather than one that is down.
func TestCircuit_AnOpenOneIsPreferredToOneThatIsDown(t *testing.T) {
	r := newRig(t)
	engines := r.named(upstream.RolePrefill, "a", "b", "c")
	engines[0].Refused()
	open(engines[1])
	r.Drain(upstream.RolePrefill, "c", true)
	if got := r.pick(); got != "b" {
		t.Errorf("picked %s, want b", got)
	}
	if got := r.pick("b", "c"); got != "a" {
		t.Errorf("picked %s, want a, as no other is left", got)
	}
}

// Up is what readiness is made of. Turns are served by engines that are all avoided, as long as they answer.
func TestUp_CountsWhatTurnsGet(t *testing.T) {
	r := newRig(t)
	engines := r.named(upstream.RolePrefill, "a", "b", "c")
	for i, step := range []struct {
		act  func()
		want int
	}{
		{func() {}, 3},
		{func() { open(engines[0]) }, 2},
		{func() { r.Drain(upstream.RolePrefill, "b", true) }, 1},
		{func() { engines[2].Refused() }, 2}, // a and b are what is left
		{func() { engines[0].Refused() }, 1},
		{func() { engines[1].Refused() }, 0},
		{func() { engines[0].Health.Probed(true) }, 1},
		{func() { engines[2].Health.Probed(true) }, 1},
	} {
		step.act()
		if got := r.Up(upstream.RolePrefill); got != step.want {
			t.Errorf("step %d: %d up, want %d", i, got, step.want)
		}
	}
}

// The ranks of one instance share its address, and its port is closed for all of them.
func TestRefused_HoldsForAllRanksAtTheAddress(t *testing.T) {
	r := newRig(t)
	book := r.logs()
	for _, rank := range []string{"a@0", "a@1"} {
		r.add(upstream.RolePrefill, rank, "http://a:1")
	}
	r.add(upstream.RolePrefill, "b", "http://b:1")
	r.Engine(upstream.RolePrefill, "a@1").Refused()
	r.Engine(upstream.RolePrefill, "a@1").Refused()
	if got := r.pick(); got != "b" || r.Up(upstream.RolePrefill) != 1 {
		t.Errorf("picked %s, %d up, want b alone", got, r.Up(upstream.RolePrefill))
	}
	r.pass(health.DownFor)
	for _, e := range r.Engines(upstream.RolePrefill) {
		e.Health.Answered()
	}
	if book.count("level=WARN", "engine is down", "refuses") != 2 || book.count("level=INFO", "answers again") != 2 {
		t.Errorf("the log has\n%s", book.text.String())
	}
	for range health.UnhealthyAfter + 1 {
		r.Engine(upstream.RolePrefill, "b").Health.Probed(false)
	}
	if book.count("level=WARN", "engine is down", "instance=b", "health") != 1 {
		t.Errorf("the log has\n%s", book.text.String())
	}
}

func TestState_SaysWhyAnEngineIsAvoided(t *testing.T) {
	r := newRig(t)
	a := r.named(upstream.RolePrefill, "a", "b")[0]
	want := func(state string, words ...string) {
		t.Helper()
		live := a.Live()
		if live.State != state {
			t.Errorf("state %q (%s), want %q", live.State, live.Why, state)
		}
		for _, word := range words {
			if !strings.Contains(live.Why, word) {
				t.Errorf("%s: %q does not say %q", state, live.Why, word)
			}
		}
		if (live.Why == "") != (state == "up") {
			t.Errorf("%s: says %q", state, live.Why)
		}
	}
	at := func(after time.Duration) string { return r.Now().Add(after).UTC().Format(time.RFC3339) }
	want("up")
	open(a)
	want("open", "5 legs in a row have failed since "+at(0), "the last with broken", at(health.OpenFirst))
	r.pass(health.OpenFirst)
	want("half_open", "one turn at a time")
	a.Health.Served()
	a.Refused()
	want("down", "refused connections since "+at(0), at(health.DownFor))
	a.Health.Answered()
	a.Health.Probed(false)
	a.Health.Probed(false)
	want("down", "2 health probes", at(0))
	a.Health.Probed(true)
	r.named(upstream.RolePrefill, "c")
	r.slow(a)
	want("ejected", "9.0 times as long", at(30*time.Second), "times in a row: 1")
	tells(a, "1").Quarantine()
	want("quarantined", "restart")
	r.Drain(upstream.RolePrefill, "a", true)
	want("draining", "operator")
	_, done := r.attempt("b", "c")
	defer done()
	r.Set(nil)
	want("draining", "removed")
}
