package server_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// clock is the time as the fleet knows it.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// advance lets time pass for a rig, after which its engines' starts are known as before.
func (c *clock) advance(r *rig, d time.Duration) {
	c.ahead.Add(int64(d))
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		for _, engine := range r.deps.Fleet.Engines(role) {
			for !engine.Fresh().Known() { // a reading under way has begun before
				engine.Refresh(r.t.Context())
			}
		}
	}
}

// stoppedRig is a rig whose link has been stopped by refused tickets. The conversation "c" has had four turns.
func stoppedRig(t *testing.T, s setup) (*rig, *clock) {
	t.Helper()
	c := &clock{}
	s.fleet = func(cfg *fleet.Config) { cfg.Now = c.now }
	r := newRig(t, s)
	r.prefill[0].always(refusesTickets(status(500, "x")))
	r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
	for n := 2; n <= 4; n++ {
		r.wantOK(r.turn("c", n, true), "miss;reason=retried_without_ticket")
	}
	r.wantOK(r.turn("c", 5, true), "miss;reason=prefill_not_bidirectional")
	return r, c
}

func TestTurn_StoppedPairIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		fails behaviour
		again string
		why   string
	}{
		"5xx":        {status(500, "x"), "miss;reason=retried_without_ticket", "answers 5xx to tickets"},
		"unanswered": {silent, "miss;reason=prefill_not_bidirectional", "does not answer tickets"},
	} {
		t.Run(name, func(t *testing.T) {
			r, clock := stoppedRig(t, setup{cfg: func(c *server.Config) { c.ReuseTrialTimeout = soonOver }})
			r.server.SpendRetries()
			r.prefill[0].always(refusesTickets(row.fails))
			n, tickets := 6, 3
			turn := func(want string) {
				r.wantOK(r.turn("c", n, true), want)
				n++
			}
			for _, pause := range []time.Duration{time.Minute, 2 * time.Minute} {
				clock.advance(r, pause-30*time.Second)
				turn("miss;reason=prefill_not_bidirectional")
				r.wantTickets(tickets)
				clock.advance(r, 30*time.Second)
				turn(row.again)
				tickets++
				turn("miss;reason=prefill_not_bidirectional")
				r.wantTickets(tickets)
				if n := r.log.count(row.why, `"tried_again_in":"`+(2*pause).String()+`"`, `"level":"WARN"`); n != 1 {
					t.Errorf("got %d warnings of a stop for %s, want 1", n, 2*pause)
				}
			}
			clock.advance(r, 4*time.Minute)
			r.prefill[0].always(prefills)
			turn("hit;")
			turn("hit;")
			if n := r.log.count("answers tickets of decode again", `"level":"INFO"`, "prefill-0", "decode-0"); n != 1 {
				t.Errorf("got %d log lines of the link's return, want 1", n)
			}
		})
	}
}

func TestTurn_OneRetrialAtATime(t *testing.T) {
	r, clock := stoppedRig(t, setup{})
	r.wantOK(r.turn("d", 1, true), "miss;reason=first_turn")
	clock.advance(r, time.Minute)
	gate := make(chan struct{})
	r.prefill[0].next(waits(gate, prefills))
	legs := len(r.prefill[0].seen())
	trial := make(chan reply, 1)
	go func() { trial <- r.turn("c", 6, true) }()
	r.prefill[0].await(legs + 1)
	r.wantOK(r.turn("d", 2, true), "miss;reason=pair_on_trial")
	close(gate)
	r.wantOK(<-trial, "hit;")
	r.prefill[0].always(prefills)
	r.wantOK(r.turn("d", 3, true), "hit;")
}

// The end of a turn whose ticket was answered long ago says nothing of the trial that runs by then.
func TestTurn_TurnThatEndsLateEndsNoRetrial(t *testing.T) {
	clock := &clock{}
	r := newRig(t, setup{fleet: func(cfg *fleet.Config) { cfg.Now = clock.now }})
	for _, c := range []string{"late", "c", "d"} {
		r.wantOK(r.turn(c, 1, true), "miss;reason=first_turn")
	}
	decoding, prefilling := make(chan struct{}), make(chan struct{})
	late, trial := make(chan reply, 1), make(chan reply, 1)
	r.decode[0].next(waits(decoding, decodes))
	go func() { late <- r.turn("late", 2, true) }()
	r.decode[0].await(4)
	r.prefill[0].always(refusesTickets(status(500, "x")))
	for n := 2; n <= 4; n++ {
		r.wantOK(r.turn("c", n, true), "miss;reason=retried_without_ticket")
	}
	clock.advance(r, time.Minute)
	r.prefill[0].next(waits(prefilling, prefills))
	legs := len(r.prefill[0].seen())
	go func() { trial <- r.turn("c", 5, true) }()
	r.prefill[0].await(legs + 1)
	turns := r.lines()
	close(decoding)
	r.wantOK(<-late, "hit;")
	r.until(func() bool { return r.lines() == turns+1 })
	r.wantOK(r.turn("d", 2, true), "miss;reason=pair_on_trial")
	close(prefilling)
	r.wantOK(<-trial, "hit;")
}

// However a trial ends inconclusively, the next turn is a trial at once: the link is neither proven nor lost.
func TestTurn_InconclusiveRetrialIsRepeated(t *testing.T) {
	for name, ends := range map[string]func(*rig, *seams){
		"panic in prefill": func(r *rig, s *seams) {
			s.legs.beforePrefill = func(context.Context) { panic("boom") }
			r.wantError(r.turn("c", 6, true), 500, "internal")
		},
		"panic in params": func(r *rig, s *seams) {
			s.connector.prefillParams = func([]byte) error { panic("boom") }
			r.wantError(r.turn("c", 6, true), 500, "internal")
		},
		"panic in take": func(r *rig, s *seams) {
			s.store.take = func(context.Context) (convcache.Outcome, bool) { panic("boom") }
			r.wantError(r.turn("c", 6, true), 500, "internal")
		},
		"panic in putting back": func(r *rig, s *seams) {
			s.unsent.now.Store(true)
			s.store.put = func(context.Context) (convcache.Outcome, bool) { panic("boom") }
			r.wantError(r.turn("c", 6, true), 500, "internal")
		},
		"another was faster": func(r *rig, s *seams) {
			s.store.take = func(context.Context) (convcache.Outcome, bool) { return convcache.Consumed, true }
			r.wantOK(r.turn("c", 6, true), "miss;reason=consumed")
		},
		"malformed ticket": func(r *rig, s *seams) {
			s.connector.prefillParams = func(ticket []byte) error {
				if ticket == nil {
					return nil
				}
				return errors.New("of another version")
			}
			r.wantOK(r.turn("c", 6, true), "miss;reason=history_rewritten")
		},
		"unsent": func(r *rig, s *seams) {
			s.unsent.now.Store(true)
			r.wantOK(r.turn("c", 6, true), "miss;reason=bypass")
		},
		"client's fault": func(r *rig, _ *seams) {
			r.prefill[0].next(status(400, "too long"))
			r.wantError(r.turn("c", 6, true), 400, "invalid_request")
		},
		"client gone before the leg": func(r *rig, s *seams) {
			r.leaves(func(leave context.CancelFunc) {
				s.legs.beforePrefill = func(ctx context.Context) { leave(); <-ctx.Done() }
			})
		},
		"client gone during the leg": func(r *rig, _ *seams) {
			r.leaves(func(leave context.CancelFunc) {
				r.prefill[0].next(func(_ http.ResponseWriter, q *http.Request, _ leg) { leave(); <-q.Context().Done() })
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := &seams{}
			r, clock := stoppedRig(t, setup{deps: all.in})
			r.wantOK(r.turn("d", 1, true), "miss;reason=first_turn")
			clock.advance(r, time.Minute)
			ends(r, all)
			all.unsent.now.Store(false)
			all.legs.stepAside()
			all.connector.prefillParams, all.store.take, all.store.put = nil, nil, nil
			// A refused ticket shows that this turn was the link's trial; a proven link would go on.
			r.wantOK(r.turn("d", 2, true), "miss;reason=retried_without_ticket")
			r.wantOK(r.turn("d", 3, true), "miss;reason=prefill_not_bidirectional")
			if n := r.log.count(`"tried_again_in":"2m0s"`); n != 1 {
				t.Errorf("got %d stops for two minutes, want 1", n)
			}
		})
	}
}

// leaves sends turn 6 of "c" by a client that leaves, and waits until the turn has ended.
func (r *rig) leaves(when func(leave context.CancelFunc)) {
	r.t.Helper()
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	turns := r.lines()
	when(leave)
	_ = r.do(ctx, http.MethodPost, chatPath, strings.NewReader(ask("c", true, history(6)...)))
	r.until(func() bool { return r.lines() == turns+1 })
}
