package server_test

import (
	"fmt"
	"net/http"
	"testing"

	"carryover/server"
	"carryover/server/turn"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/routing"
)

// A second try goes to another instance of the role, however attractive the one is that has failed: here it is always the first.
func TestElsewhere_ASecondTryGoesToAnotherInstance(t *testing.T) {
	alone := func(c *server.Config) { c.DisaggThreshold = 1 << 20 }
	for name, row := range map[string]struct {
		act behaviour
		cfg func(*server.Config)
	}{
		"500 to hand-overs":         {status(500, "x"), nil},
		"500, and prefill no other": {status(500, "x"), onPrefillFailure(turn.PrefillError)},
		"500 alone":                 {status(500, "x"), alone},
		"503":                       {status(503, "x"), nil},
		"breaks":                    {hangUp, nil},
		"breaks behind its headers": {breaks(nothing, ""), alone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, setup{prefills: 2, decodes: 2, fleet: frozen, cfg: row.cfg})
			for n := range 4 {
				r.wantOK(r.turn(fmt.Sprint(n), 1, true), "")
			}
			r.decode[0].always(row.act)
			for n := range 12 {
				before := len(r.decode[0].ofClients())
				r.wantOK(r.turn(fmt.Sprint(n), 2, n%2 == 0), "")
				if legs := len(r.decode[0].ofClients()) - before; legs > 1 {
					t.Errorf("turn %d: the instance that fails got %d legs", n, legs)
				}
			}
		})
	}
}

// An instance that refuses connections is no other one.
func TestElsewhere_NotWhereNobodyListens(t *testing.T) {
	r := newRig(t, setup{deadDecodes: 1, fleet: frozen})
	r.wantOK(r.turn("", 1, true), "")
	r.decode[0].next(status(503, "x"))
	r.wantOK(r.turn("", 1, true), "")
}

// seen is a policy that keeps the most requests besides ours that a candidate had.
type seen struct {
	routing.LeastLoaded
	others int
}

func (s *seen) Pick(candidates []upstream.Candidate, key string) int {
	for i := range candidates {
		s.others = max(s.others, candidates[i].Others)
	}
	return s.LeastLoaded.Pick(candidates, key)
}

// An instance that fails at once has no request under way for longer than a moment, and must not look idle beside one that works. What a request
// shows that fails everywhere, or that was refused, is no load of anybody.
func TestElsewhere_AFailureIsALoad(t *testing.T) {
	for name, row := range map[string]struct {
		acts [2]behaviour // of decode, to what comes after the two streams
		most int          // legs of the second in twelve turns
		load bool
	}{
		"the idle one fails": {[2]behaviour{decodes, status(500, "x")}, 3, true},
		"both fail":          {[2]behaviour{status(500, "x"), status(500, "x")}, 24, false},
		"it refuses":         {[2]behaviour{decodes, status(400, "x")}, 12, false},
	} {
		t.Run(name, func(t *testing.T) {
			policy := &seen{}
			r := newRig(t, setup{decodes: 2, fleet: func(c *fleet.Config) { frozen(c); c.Decode = policy }, cfg: func(c *server.Config) { c.DisaggThreshold = 1 << 20 }})
			r.decode[0].always(pausing(chatEvents, 2, nil))
			r.engine(r.decode[1]).Health.SetDrain(true)
			for range 2 {
				r.opens(t.Context(), chatPath, ask("", true, "a stream"))
			}
			r.engine(r.decode[1]).Health.SetDrain(false)
			for i, act := range row.acts {
				r.decode[i].always(act)
			}
			for n := range 12 {
				if p := r.turn(fmt.Sprint(n), 1, true); row.load && p.status != http.StatusOK {
					t.Errorf("turn %d: %d %s", n, p.status, p.body)
				}
			}
			if legs := len(r.decode[1].ofClients()); legs > row.most {
				t.Errorf("the idle one got %d legs, want %d at most", legs, row.most)
			}
			if (policy.others > 0) != row.load {
				t.Errorf("policies saw a load of %d, want one: %t", policy.others, row.load)
			}
		})
	}
}
