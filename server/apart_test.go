package server_test

import (
	"strings"
	"testing"
	"time"

	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// refusesHandOvers is a decode instance that can't load prefill's KV, and else answers.
func refusesHandOvers(fails behaviour) behaviour {
	return where(func(l leg) bool { return strings.Contains(l.body, `"do_remote_prefill":true`) }, fails, decodes)
}

// apartRig is a rig whose pair has been left alone, and what its turns are, n of which are to be tried.
type apartRig struct {
	*rig
	*clock
}

func newApartRig(t *testing.T, fails behaviour) apartRig {
	t.Helper()
	c := &clock{}
	r := apartRig{newRig(t, setup{fleet: func(cfg *fleet.Config) { cfg.Now = c.now }}), c}
	r.decode[0].always(refusesHandOvers(fails))
	for range pairs.Strikes {
		r.wantAlone(true)
	}
	r.wantAlone(false)
	r.wantStop("1m0s")
	return r
}

// wantAlone has a turn that decode serves alone, behind a hand-over that it can't load if tried says so.
func (r apartRig) wantAlone(tried bool) {
	r.t.Helper()
	before := len(r.prefill[0].seen())
	r.wantPath(r.turn("", 1, true), failedAlone)
	if n := len(r.prefill[0].seen()) - before; (n == 1) != tried || n > 1 {
		r.t.Errorf("prefill got %d legs, tried: %t", n, tried)
	}
}

// wantStop wants one warning of a stop of that length.
func (r apartRig) wantStop(pause string) {
	r.t.Helper()
	if n := r.log.count("the pair is left alone", `"tried_again_in":"`+pause+`"`, `"level":"WARN"`); n != 1 {
		r.t.Errorf("got %d warnings of a stop for %s, want 1", n, pause)
	}
}

// A pair that was left alone is tried again ever more rarely, by one turn at a time, until decode loads KV.
func TestTurn_APairThatIsApartIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]behaviour{"status": status(500, "x"), "event": kvFails} {
		t.Run(name, func(t *testing.T) {
			r := newApartRig(t, fails)
			for _, next := range []string{"2m0s", "4m0s"} {
				pause, _ := time.ParseDuration(next)
				r.advance(r.rig, pause/2-time.Second)
				r.wantAlone(false)
				r.advance(r.rig, time.Second)
				r.wantAlone(true)
				r.wantAlone(false)
				r.wantStop(next)
			}
			r.advance(r.rig, 4*time.Minute)
			gate, tries := make(chan struct{}), make(chan reply)
			r.decode[0].always(refusesHandOvers(waits(gate, decodes)))
			legs := len(r.decode[0].ofClients())
			go func() { tries <- r.turn("", 1, true) }()
			r.until(func() bool { return len(r.decode[0].ofClients()) > legs })
			r.wantAlone(false) // beside it
			close(gate)
			r.wantPath(<-tries, "prefill_decode;tokens=2")
			r.wantPath(r.turn("", 1, true), "prefill_decode;tokens=2")
			if n := r.log.count("decode loads prefill's KV again"); n != 1 || r.state(r.prefill[0]) != "up" {
				t.Errorf("got %d lines that the pair is back, and prefill is %s", n, r.state(r.prefill[0]))
			}
			r.decode[0].always(refusesHandOvers(fails))
			for range pairs.Strikes { // as at first
				r.wantAlone(true)
			}
		})
	}
}

// A trial that ends before decode has the hand-over says nothing, and the next turn is one.
func TestTurn_ATrialThatPrefillFailsIsNone(t *testing.T) {
	t.Parallel()
	r := newApartRig(t, kvFails)
	r.advance(r.rig, time.Minute)
	r.prefill[0].next(status(500, "x"))
	r.wantAlone(true)
	r.wantAlone(true)
	r.wantAlone(false)
	r.wantStop("2m0s")
}
