package fleet

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"carryover/upstream"
)

// An incarnation counts only while no connection of its engine has been refused or ended since it was read: another process may be there.
func TestReading_CountsNoMoreBehindABreak(t *testing.T) {
	for name, breaks := range map[string]func(e *Engine){
		"of a leg":             func(e *Engine) { e.Broke() },
		"refused":              func(e *Engine) { e.Refused() },
		"as the client saw it": func(e *Engine) { e.fleet.broke(e.BaseURL) },
		"of another rank":      func(e *Engine) { e.fleet.at(e.BaseURL)[0].Broke() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			started := "1"
			e := r.engine(upstream.RoleDecode, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte("process_start_time_seconds " + started + "\n"))
			})
			first := e.Current(t.Context())
			if !first.Alive(t.Context()) || first.ID() != "1" {
				t.Fatalf("the start is %q, and not alive", first.ID())
			}
			started = "2"
			if !first.Alive(t.Context()) {
				t.Fatal("it was read again, so that this test shows nothing")
			}
			breaks(e)
			if first.Alive(t.Context()) {
				t.Error("the start of before is alive")
			}
			if now := e.Current(t.Context()); now.ID() != "2" || !now.Alive(t.Context()) {
				t.Errorf("the start is %q, want 2", now.ID())
			}
		})
	}
}

// A reading that is overtaken by a break counts for nothing. It is made again, so that the turn that asks is not without a start.
func TestReading_IsMadeAgainWhenABreakOvertakesIt(t *testing.T) {
	r := newRig(t)
	var overtaken atomic.Int32
	var e *Engine
	e = r.engine(upstream.RoleDecode, func(w http.ResponseWriter, _ *http.Request) {
		if overtaken.Add(1) <= 2 {
			e.Broke()
		}
		_, _ = w.Write([]byte("process_start_time_seconds 1\n"))
	})
	if s := e.Current(t.Context()); s.ID() != "1" || !s.Alive(t.Context()) {
		t.Errorf("the start is %q after %d readings, want 1", s.ID(), overtaken.Load())
	}
	var asked atomic.Int32
	e = r.engine(upstream.RoleDecode, func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
		e.Broke()
	})
	if s := e.Current(t.Context()); s.Known() || asked.Load() != maxReadings {
		t.Errorf("the start is %q after %d readings, want none after %d", s.ID(), asked.Load(), maxReadings)
	}
}

// The end of a connection that is kept is seen when a ticket is about to be used, though no leg has told of it.
func TestReading_CountsNoMoreWhenAKeptConnectionHasEnded(t *testing.T) {
	r := newRig(t)
	var started atomic.Int32
	started.Store(1)
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("process_start_time_seconds " + string('0'+started.Load()) + "\n"))
	})
	srv := httptest.NewServer(handler)
	defer srv.Close()
	e := r.add(upstream.RoleDecode, "d", srv.URL)
	first := e.Current(t.Context())
	if !first.Alive(t.Context()) {
		t.Fatal("it is not alive")
	}
	started.Store(2)
	srv.CloseClientConnections() // returns when they are closed, which on loopback has arrived
	if first.Alive(t.Context()) {
		t.Error("the start of before is alive")
	}
	if now := e.Current(t.Context()); now.ID() != "2" {
		t.Errorf("the start is %q, want 2", now.ID())
	}
}

// What was read goes on to serve picks: API servers that are busy end connections too.
func TestReading_ServesPicksBehindABreak(t *testing.T) {
	r := newRig(t)
	_, d := r.incarnations()
	d.Engine().Broke()
	if d.Engine().Last() != d || d.Engine().last.Load() != d || d.Engine().Fresh().Known() {
		t.Error("want the start that was read last for picks, and none that counts")
	}
}
