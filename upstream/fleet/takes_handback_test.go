package fleet

import (
	"testing"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/fleet/health"
)

// reads has the engine's last reading tell of this load.
func (e *Engine) reads(l Load) {
	l.until = l.Read.Sub(e.fleet.born) + loadFor
	e.load.Store(&l)
}

func TestTakesHandBack(t *testing.T) {
	read := func(u facts.Use, others int) func(*weighing, *Engine) {
		return func(w *weighing, e *Engine) { e.reads(Load{Use: u, Others: others, Read: w.Now()}) }
	}
	busy := func(n int) func(*weighing, *Engine) {
		return func(w *weighing, e *Engine) {
			for range n {
				w.begin(e)
			}
		}
	}
	for _, row := range []struct {
		name string
		is   []func(*weighing, *Engine)
		want bool
	}{
		{"idle", nil, true},
		{"as many of ours as a busy fleet has", []func(*weighing, *Engine){busy(4)}, true},
		{"nearly as many as are too many", []func(*weighing, *Engine){busy(7)}, true},
		{"too many of ours", []func(*weighing, *Engine){busy(8)}, false},
		{"too many of others", []func(*weighing, *Engine){read(facts.Use{Running: 8}, 8)}, false},
		{"too many of both", []func(*weighing, *Engine){busy(4), read(facts.Use{Running: 8}, 4)}, false},
		{"too many of our hand-backs", []func(*weighing, *Engine){busy(4), func(_ *weighing, e *Engine) {
			for range 4 {
				e.BeginHandBack()
			}
		}}, false},
		{"hand-backs that have ended", []func(*weighing, *Engine){func(_ *weighing, e *Engine) {
			for range 9 {
				done := e.BeginHandBack()
				done()
				done()
			}
		}}, true},
		{"too many hand-backs after one that has ended twice", []func(*weighing, *Engine){func(_ *weighing, e *Engine) {
			done := e.BeginHandBack()
			done()
			done()
			for range 8 {
				e.BeginHandBack()
			}
		}}, false},
		{"a request of others waits for room", []func(*weighing, *Engine){read(facts.Use{Running: 1, Waiting: 1, Short: 1}, 2)}, false},
		{"one of ours waited for room", []func(*weighing, *Engine){busy(2), read(facts.Use{Running: 1, Waiting: 1, Short: 1}, 0)}, false},
		{"one of ours waited, and none is left", []func(*weighing, *Engine){read(facts.Use{Running: 1, Waiting: 1, Short: 1}, 0)}, true},
		{"one waits for KV that it reads", []func(*weighing, *Engine){read(facts.Use{Running: 1, Waiting: 1}, 2)}, true},
		{"a full cache", []func(*weighing, *Engine){read(facts.Use{Usage: 0.9}, 0)}, false},
		{"a cache with room", []func(*weighing, *Engine){read(facts.Use{Usage: 0.89}, 0)}, true},
		{"read lately", []func(*weighing, *Engine){func(w *weighing, _ *Engine) { w.pass(loadFor - 1) }}, true},
		{"not read for long", []func(*weighing, *Engine){func(w *weighing, _ *Engine) { w.pass(loadFor) }}, false},
		{"never read", []func(*weighing, *Engine){func(_ *weighing, e *Engine) { e.reads(Load{}) }}, false},
		{"start not known", []func(*weighing, *Engine){func(w *weighing, e *Engine) { e.forget(); read(facts.Use{}, 0)(w, e) }}, false},
		{"quarantined", []func(*weighing, *Engine){func(_ *weighing, e *Engine) { e.Last().Quarantine() }}, false},
		{"drained", []func(*weighing, *Engine){func(_ *weighing, e *Engine) { e.Health.SetDrain(true) }}, false},
		{"gone", []func(*weighing, *Engine){func(w *weighing, _ *Engine) { w.Set(nil) }}, false},
		{"refuses connections", []func(*weighing, *Engine){func(_ *weighing, e *Engine) { e.Refused() }}, false},
		{"unhealthy", []func(*weighing, *Engine){func(_ *weighing, e *Engine) { e.Health.Probed(false); e.Health.Probed(false) }}, false},
		{"one probe has failed", []func(*weighing, *Engine){func(_ *weighing, e *Engine) { e.Health.Probed(false) }}, true},
		{"circuit open", []func(*weighing, *Engine){func(_ *weighing, e *Engine) { open(e) }}, false},
		{"circuit half-open", []func(*weighing, *Engine){func(w *weighing, e *Engine) { open(e); w.pass(health.OpenFirst) }}, false},
		{"circuit closed again", []func(*weighing, *Engine){func(w *weighing, e *Engine) { open(e); w.pass(health.OpenFirst); e.Health.Served() }}, true},
		{"ejected", []func(*weighing, *Engine){func(w *weighing, e *Engine) {
			w.named(upstream.RolePrefill, "another")
			w.slow(e)
		}}, false},
	} {
		w := newWeighing(t)
		e := w.p[0].Engine()
		read(facts.Use{}, 0)(w, e)
		for _, is := range row.is {
			is(w, e)
		}
		if got := e.TakesHandBack(); got != row.want {
			t.Errorf("%s: %t, want %t", row.name, got, row.want)
		}
	}
}

// begin begins an attempt on an engine that lasts as long as the test.
func (w *weighing) begin(e *Engine) {
	w.t.Helper()
	_, done, err := w.Pick(e.Role, Hint{}, func(other *Engine) bool { return other != e })
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(done)
}

// What goes back to an engine is no attempt of a turn, and no request of others either.
func TestBeginHandBack_IsNoTurnAndIntroducesNothing(t *testing.T) {
	r := newRig(t)
	e := r.engine(upstream.RolePrefill, answers(200, "process_start_time_seconds 1\nvllm:num_requests_running 3\n"))
	r.SetMaxInFlight(1)
	done := e.BeginHandBack()
	e.Refresh(t.Context())
	if live := e.Live(); live.InFlight != 0 || live.Others != 2 {
		t.Errorf("one hand-back of three requests: %d are ours, %d of others, want 0 and 2", live.InFlight, live.Others)
	}
	_, ends, err := r.Pick(upstream.RolePrefill, Hint{}, nil)
	if err != nil {
		t.Errorf("a hand-back takes a turn's place: %v", err)
	} else {
		ends()
	}
	done()
	e.Refresh(t.Context())
	if live := e.Live(); live.Others != 3 {
		t.Errorf("none of three requests is ours: %d of others", live.Others)
	}
}

func TestTakesHandBack_AllocatesNothing(t *testing.T) {
	w := newWeighing(t)
	e := w.p[0].Engine()
	e.reads(Load{Read: w.Now()})
	if n := testing.AllocsPerRun(100, func() { e.TakesHandBack() }); n != 0 {
		t.Errorf("it allocates %v times", n)
	}
}
