package fleet

import (
	"io"
	"net/http"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// A process that ends closes its connections. Where none was open, only its start tells that another one answers.
func TestReading_CountsNotBehindAMomentWithoutConnections(t *testing.T) {
	r := newRig(t)
	sim, e := r.simulate(upstream.RoleDecode, func(c *vllmsim.Config) { c.EngineID = "decode-0" })
	first := e.Current(t.Context())
	r.cfg.Client.Close()
	sim.Restart()
	r.pass(time.Millisecond)
	if first.Alive(t.Context()) {
		t.Error("the start of before counts, though nothing was connected when another process came")
	}
	if second := e.Current(t.Context()); !second.Known() || second == first {
		t.Errorf("got start %q, want the next one", second.ID())
	}
	if n := len(sim.Requests()); n != 2 {
		t.Errorf("read %d times, want 2: the connection of the second reading is kept", n)
	}
}

// On a fleet with traffic some connection from before is always open, and turns wait for no reading.
func TestReading_CountsWhileAConnectionIsOpen(t *testing.T) {
	r := newRig(t)
	sim, e := r.simulate(upstream.RoleDecode, nil)
	s := e.Current(t.Context())
	for range 10 {
		r.pass(readFor / 20)
		if _, _, err := r.cfg.Client.Fetch(t.Context(), e.Instance(), "/version", "", 1<<10); err != nil {
			t.Fatal(err)
		}
		if !s.Alive(t.Context()) || e.Current(t.Context()) != s {
			t.Fatal("the start is not the one that was read")
		}
	}
	read := 0
	for _, path := range paths(sim) {
		if path == "/metrics" {
			read++
		}
	}
	if read != 1 {
		t.Errorf("read %d times, want once", read)
	}
}

// An engine that keeps no connection is read for each turn, and no oftener.
func TestReading_OfAnEngineThatKeepsNoConnections(t *testing.T) {
	r := newRig(t)
	asked, text := 0, "process_start_time_seconds 5\n"
	tell := tellsMetrics(&asked, &text)
	e := r.engine(upstream.RoleDecode, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		tell(w, r)
	})
	for n := range 3 {
		if s := e.Current(t.Context()); s.ID() != "5" || asked != n+1 {
			t.Errorf("got start %q after %d questions, want 5 after %d", s.ID(), asked, n+1)
		}
		r.pass(time.Millisecond)
	}
	if e.Fresh().ID() != "5" || asked != 3 {
		t.Error("Fresh does not tell what was read, or asks")
	}
}

// An attempt begins with what was read last of an engine that does not answer: it may go to another one.
func TestPin_KeepsWhatWasReadOfAnEngineThatDoesNotAnswer(t *testing.T) {
	r := newRig(t)
	_, p := r.simulate(upstream.RolePrefill, nil)
	sim, d := r.simulate(upstream.RoleDecode, nil)
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
	both := make(chan struct{}, 2) // one each
	meet := func(w http.ResponseWriter, q *http.Request) {
		both <- struct{}{}
		for len(both) < 2 {
			select {
			case <-q.Context().Done():
				return
			case <-time.After(time.Millisecond):
			}
		}
		_, _ = io.WriteString(w, "process_start_time_seconds 5\n")
	}
	p, d := Pin(t.Context(), r.engine(upstream.RolePrefill, meet), r.engine(upstream.RoleDecode, meet))
	if p.ID() != "5" || d.ID() != "5" {
		t.Errorf("got starts %q and %q", p.ID(), d.ID())
	}
}

// What an answer holds is held by the process that runs now: a turn that leaves no ticket asks only where that may be another one.
func TestHolder_IsReadWhereARestartMayBeUnseen(t *testing.T) {
	r := newRig(t)
	sim, e := r.simulate(upstream.RoleDecode, func(c *vllmsim.Config) { c.EngineID = "decode-0" })
	if e.Holder(t.Context()).Known() || len(sim.Requests()) != 0 {
		t.Error("an engine of which nothing was read is asked")
	}
	first := e.Current(t.Context())
	if r.pass(time.Hour); e.Holder(t.Context()) != first || len(sim.Requests()) != 1 {
		t.Error("the engine is asked though a connection from before is open")
	}
	r.cfg.Client.Close()
	sim.Restart()
	if next := e.Holder(t.Context()); next == first || !next.Known() {
		t.Errorf("got start %q, want the next one", next.ID())
	}
}
